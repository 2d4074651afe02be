package send

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// A plan is how a value travels.
type plan struct {
	t      tensor.Tensor
	record *tensors.Record
	choice policy.Choice
	text   string // of the codec
	unit   int    // bytes that no block has a part of: an element, or a row
	block  int    // bytes that the codec wants at once

	shared  bool            // the peer holds its values
	partial bool            // it is to hold them by their content: the tensor's bytes come again
	flush   bool            // the value travels exactly, with its residual added
	dense   *residual.Dense // nil: the codec loses nothing, or the lost part is in the next difference
	watch   *residual.Dense // keeps the values until they may lose something; nil: they may already, or never
	rows    *rowPlan        // nil: it is dense, or its rows lose nothing
}

// parts reports whether values travel as parts of values that the peer holds.
func (p *plan) parts() bool { return p.shared && p.partial && !codecs.Lossy(p.choice.Codec) }

// tooShort reports whether a block of n bytes, as a pause of the sender leaves it, is shorter than its parts would be.
func (p *plan) tooShort(n int) bool { return p.parts() && n < policy.MinShared }

// summed reports whether values may lose something, though the app sends a CRC-32 that covers them, which stays right.
func (p *plan) summed() bool { return p.t.CRC32 && codecs.Lossy(p.choice.Codec) }

// A rowPlan is the rest of a plan where the value is rows.
type rowPlan struct {
	past  *residual.Rows
	use   *rowUse
	index uint64 // number of the index array
	bytes int    // of a row
	due   residual.RowsDue
}

// A rowUse is the state of an array whose rows a sender sends, and the order of its values.
type rowUse struct {
	keys     codecs.Codec   // of the index, which belongs to the codec of the last value; nil: none does
	value    uint64         // number of the index array of the value whose blocks were submitted last
	last     []coder.Ticket // of its blocks
	previous []coder.Ticket // of the blocks of the value before
}
