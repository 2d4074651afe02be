package proxy

import (
	"encoding/binary"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"time"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// The block cutter: tensors are cut into blocks at fixed offsets, and blocks wait until they are whole. What stands
// between the bytes of a block that waits (headers, other tensors) waits with it, in a group that leaves at once.

// A group is what waits: at least one block that is not whole, and everything that came after its first byte.
type group struct {
	runs     []run
	literals []byte
	blocks   []*sendBlock
	open     int       // blocks that are not whole
	size     int       // bytes of all runs
	total    int       // the same once all blocks are whole
	paid     int       // bytes of the budget, beside what each block has
	paidRuns int       // runs that are paid for
	timed    bool      // the sender may be waiting for an answer to bytes that wait here
	since    time.Time // when the first such block began
}

// A run is n bytes that lie side by side in the stream: of blocks[block], or literal.
type run struct {
	n     int
	block int // index, or literal
}

const literal = -1

// add notes the next n bytes of the stream. Runs of the same kind that follow each other are one.
func (g *group) add(n, block int) {
	g.size += n
	if last := len(g.runs) - 1; last >= 0 && g.runs[last].block == block {
		g.runs[last].n += n
		return
	}
	g.runs = append(g.runs, run{n, block})
}

// addLiteral notes bytes that stand between blocks, for which cost bytes were taken of the budget.
func (g *group) addLiteral(b []byte, cost int) {
	g.paid += cost
	g.literals = append(g.literals, b...)
	g.add(len(b), literal)
	g.total += len(b)
}

// overfull reports whether n more bytes are more than may wait together, or than a Gather frame may deliver. What
// one read adds still fits.
func (g *group) overfull(n, most int) bool {
	return g.open > 0 && (g.total+n > min(most, frame.MaxBlock-readSize) || len(g.runs) >= frame.MaxRuns-2 || len(g.blocks) >= frame.MaxGathered)
}

// start opens a block whose bytes follow.
func (g *group) start(b *sendBlock, timed bool) {
	b.index = len(g.blocks)
	g.blocks = append(g.blocks, b)
	g.open++
	g.total += len(b.data)
	if timed && !g.timed {
		g.timed, g.since = true, time.Now()
	}
}

// fill notes that a block has its next n bytes, and reports whether that makes the whole group whole.
func (g *group) fill(b *sendBlock, n int) (whole bool) {
	b.filled += n
	g.add(n, b.index)
	if b.filled == len(b.data) {
		g.open--
	}
	return g.open == 0
}

// A tensorCut is a tensor of which not all bytes have come.
type tensorCut struct {
	choice policy.Choice
	text   string          // of the codec
	flush  bool            // the value travels exactly, with what is owed added
	memory *residual.Dense // nil: the codec loses nothing, or what is lost is in the next difference
	watch  *residual.Dense // keeps its values until they may lose something; nil: they may already, or never
	rows   *rowCut         // nil: it is dense, or its rows lose nothing
	shared bool            // the peer holds its values
	want   int             // bytes that the codec wants at once
	off    int             // of the next byte that has not come
	block  *sendBlock
	left   int // bytes until the block, or the run that travels verbatim in its stead, ends
	record *tensors.Record
	t      tensor.Tensor
}

// unit returns the bytes that no block has a part of: an element, or a row.
func (c *tensorCut) unit() int {
	if c.rows != nil {
		return c.rows.bytes
	}
	return c.t.DType.Size()
}

// odd reports whether a block of n bytes is as long as what is left of a sparse tensor's message, or its index.
func (c *tensorCut) odd(n int) bool { return c.t.Keys != 0 && n < c.want }

const (
	literalCost = 3  // memory of a literal byte: as it waits, in a slice that grows, and in the Gather frame
	runCost     = 48 // memory of a run, likewise
)

// maxCuts bounds the tensors of one direction that are under way at a time.
const maxCuts = 1024

// next returns how many bytes the block at c.off has, and whether it is whole without a timer: hold is what the sender
// writes without waiting for an answer, 0 or less if that is not known.
func (c *tensorCut) next(hold int) (n int, timed bool) {
	n = min(c.want, c.t.Size-c.off)
	if hold > 0 && hold < n {
		n = hold
	}
	return n, hold <= 0
}

// gather returns the body of the group's Gather frame.
func (g *group) gather() []byte {
	body := make([]byte, 0, len(g.literals)+len(g.runs)*2*binary.MaxVarintLen32)
	literals := g.literals
	for _, r := range g.runs {
		if r.block == literal {
			body, literals = frame.AppendLiteral(body, literals[:r.n]), literals[r.n:]
			continue
		}
		body = frame.AppendRun(body, r.n, r.block)
	}
	return body
}
