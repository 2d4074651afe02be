package flower

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/npy"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
	"github.com/gradproxy/gradproxy/tensor"
)

// A message reads one message of a call.
type message struct {
	call   *call
	side   parser.Side
	layout layout
	scan   protoscan.Scanner

	run, node uint64
	initial   bool   // a client sends the parameters with which the training begins, which the server then sends as the first model
	arrays    int    // that have begun in this message, or in this record
	record    uint64 // names the record
	keys      []uint64
	names     []string // the same, for people
	records   int      // in the tree, that have arrays
	leaves    int      // arrays in the record of the tree
	chunks    int      // in the array of the tree

	field   streamed
	file    npy.Scanner
	object  object
	value   tensor.Tensor // whose elements come next
	payload bool          // the message has elements
}

// A streamed is the kind of the streamed field that is under way.
type streamed uint8

const (
	ofArray streamed = iota
	ofObject
)

// message begins a message of size bytes; nil: nobody looks at it.
func (c *call) message(side parser.Side, size int) *message {
	if c == nil || c.method.layouts[side] == nil {
		return nil
	}
	m := &message{call: c, side: side, layout: c.method.layouts[side]}
	m.scan.Begin(m, size)
	return m
}

// begin begins the elements of a tensor.
//
// base names the values that the server sends in its place. A result is predicted by the model that its client was
// sent, and if there is none by the client's own last result.
func (m *message) begin(size int, d tensor.DType, base uint64) {
	x, model := m.call.conn, uint64(0)
	if m.side == parser.Client && !m.initial {
		base, model = mix.Words(baseOfResult, base, m.node), base
	}
	m.value = tensor.Tensor{
		Key:  mix.Words(keyOfBase, base, uint64(m.side), x.host),
		Role: tensor.State, DType: d, Size: size, Base: base, Model: model, Answered: m.side == parser.Server || m.initial, Proof: tensor.ByWire,
		Repeats: m.call.method.repeats[m.side],
	}
	if m.call.method.exact {
		m.value.Role = tensor.Exact
	}
	if d == tensor.NoDType {
		m.value.Why = tensor.DTypeUnknown
	}
}

// base returns the Base of an array in a message.
func (m *message) base(h npy.Header) uint64 {
	which := uint64(m.arrays)
	if i := m.arrays - 1; i < len(m.keys) {
		which = m.keys[i]
	}
	return mix.Words(baseOfArray, m.call.conn.seed, m.run, m.record, which, uint64(h.DType), uint64(h.Data))
}
