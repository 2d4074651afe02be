package send

import (
	"encoding/binary"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A group is blocks and opaque bytes that must leave together, in stream order: at least one block that is not whole,
// and all bytes that came after its first one.
type group struct {
	runs         []run
	literals     []byte
	blocks       []*block
	open         int       // blocks that are not whole
	size         int       // bytes of all runs
	total        int       // the same once all blocks are whole
	reserved     int       // bytes of the budget, beside the bytes of each block
	reservedRuns int       // runs that have memory
	timed        bool      // the sender may be waiting for an answer to bytes that wait here
	since        time.Time // when the first such block began
}

// A run is n bytes that lie side by side in the stream: of blocks[block], or literal.
type run struct {
	n     int
	block int // index, or literal
}

const literal = -1

const (
	literalCost = 3  // memory of a literal byte: as it waits, in a slice that grows, and in the Gather frame
	runCost     = 48 // memory of a run, likewise
)

// stallMax is how long a block waits for more bytes at most, however they drip.
const stallMax = 4 * stallAfter

// stallAfter is how long a block waits for more bytes where the sender may be waiting for an answer (flow control).
const stallAfter = 5 * time.Millisecond

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
	g.reserved += cost
	g.literals = append(g.literals, b...)
	g.add(len(b), literal)
	g.total += len(b)
}

// overfull reports whether n more bytes are more than may wait together, or than a Gather frame may deliver. The bytes
// that one read adds still fit.
func (g *group) overfull(n, limit int) bool {
	return g.open > 0 && (g.total+n > min(limit, frame.MaxBlock-readSize) || len(g.runs) >= frame.MaxRuns-2 || len(g.blocks) >= frame.MaxGathered)
}

// overdue reports whether a block has waited for longer than it may.
func (g *group) overdue() bool { return g.timed && time.Since(g.since) > stallMax }

// start opens a block whose bytes follow.
func (g *group) start(b *block, timed bool) {
	b.index = len(g.blocks)
	g.blocks = append(g.blocks, b)
	g.open++
	g.total += len(b.data)
	if timed && !g.timed {
		g.timed, g.since = true, time.Now()
	}
}

// fill notes that a block has its next n bytes, and reports whether that makes the whole group whole.
func (g *group) fill(b *block, n int) (whole bool) {
	b.filled += n
	g.add(n, b.index)
	if b.filled == len(b.data) {
		g.open--
	}
	return g.open == 0
}

// apart returns the blocks that f wants, if each of them ends before the next begins; else only the one of them that
// has most bytes.
func (g *group) apart(f func(*block) bool) []bool {
	chosen, largest := make([]bool, len(g.blocks)), -1
	for i, b := range g.blocks {
		chosen[i] = f(b)
		if chosen[i] && (largest < 0 || b.filled > g.blocks[largest].filled) {
			largest = i
		}
	}
	last := -1
	for _, r := range g.runs {
		if r.block == literal || !chosen[r.block] {
			continue
		}
		if r.block < last { // blocks are numbered in the order of their first bytes
			clear(chosen)
			chosen[largest] = true
			return chosen
		}
		last = r.block
	}
	return chosen
}

// cuts returns for each block where its runs end in it.
func (g *group) cuts() [][]int {
	cuts, taken := make([][]int, len(g.blocks)), make([]int, len(g.blocks))
	for _, r := range g.runs {
		if r.block != literal {
			taken[r.block] += r.n
			cuts[r.block] = append(cuts[r.block], taken[r.block])
		}
	}
	return cuts
}

// reserveRuns takes memory for the runs of the group, a number of them at a time.
func (g *group) reserveRuns(m *memory.Allocator) bool {
	const n = 64
	if len(g.runs) < g.reservedRuns {
		return true
	}
	if !m.Take(n * runCost) {
		return false
	}
	g.reserved += n * runCost
	g.reservedRuns += n
	return true
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
