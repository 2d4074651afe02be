package proxy

import (
	"encoding/binary"
	"fmt"
)

// gather returns the body of the group's Gather frame.
func (g *group) gather() []byte {
	body := make([]byte, 0, len(g.literals)+len(g.runs)*2*binary.MaxVarintLen32)
	literals := g.literals
	for _, r := range g.runs {
		if r.block == literal {
			body = binary.AppendUvarint(body, uint64(r.n)<<1)
			body, literals = append(body, literals[:r.n]...), literals[r.n:]
			continue
		}
		body = binary.AppendUvarint(body, uint64(r.n)<<1|1)
		body = binary.AppendUvarint(body, uint64(r.block))
	}
	return body
}

// parseGather checks the body of a Gather frame and returns the bytes that its runs take of each Block that follows.
func parseGather(body []byte) (sizes []int, err error) {
	r := fields{b: body}
	size, count := 0, 0
	for len(r.b) > 0 && !r.short {
		head := r.int()
		n := head >> 1
		if n == 0 || n > MaxBlock-size {
			return nil, fmt.Errorf("%w: gather of more than %d bytes, or an empty run", errFrame, MaxBlock)
		}
		size += n
		if count++; count > maxRuns {
			return nil, fmt.Errorf("%w: gather of more than %d runs", errFrame, maxRuns)
		}
		if head&1 == 0 {
			r.next(n)
			continue
		}
		b := r.int()
		if b > len(sizes) || b >= maxGathered { // blocks are numbered in the order of their first bytes
			return nil, fmt.Errorf("%w: gather speaks of block %d after %d others, at most %d are possible", errFrame, b, len(sizes), maxGathered)
		}
		if b == len(sizes) {
			sizes = append(sizes, 0)
		}
		sizes[b] += n
	}
	if r.short || len(sizes) == 0 {
		return nil, fmt.Errorf("%w: gather is cut short or names no block", errFrame)
	}
	return sizes, nil
}

// gatheredAtOnce is how many runs of a Gather are delivered at once.
const gatheredAtOnce = 64

// deliverRuns delivers the runs of a Gather's body, which parseGather has checked, some at a time and without copying them. blocks are the elements
// of its Blocks.
func deliverRuns(body []byte, blocks [][]byte, deliver func(runs ...[]byte) error) error {
	runs := make([][]byte, 0, gatheredAtOnce)
	for r := (fields{b: body}); len(r.b) > 0; {
		head := r.int()
		n := head >> 1
		if head&1 == 0 {
			runs = append(runs, r.next(n))
		} else {
			b := r.int()
			runs = append(runs, blocks[b][:n])
			blocks[b] = blocks[b][n:]
		}
		if len(runs) == cap(runs) || len(r.b) == 0 {
			if err := deliver(runs...); err != nil {
				return err
			}
			runs = runs[:0]
		}
	}
	return nil
}
