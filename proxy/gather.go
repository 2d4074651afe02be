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

// parseGather reads the body of a Gather frame into a group without blocks; sizes are the bytes that the runs take of
// each Block that follows.
func parseGather(body []byte) (g group, sizes []int, err error) {
	r := fields{b: body}
	for len(r.b) > 0 && !r.short {
		head := r.int()
		n := head >> 1
		switch {
		case n == 0 || n > MaxBlock-g.size:
			return g, nil, fmt.Errorf("%w: gather of more than %d bytes, or an empty run", errFrame, MaxBlock)
		case len(g.runs) >= maxRuns:
			return g, nil, fmt.Errorf("%w: gather of more than %d runs", errFrame, maxRuns)
		case head&1 == 0:
			g.addLiteral(r.next(n))
			continue
		}
		b := r.int()
		if b > len(sizes) || b >= maxGathered { // blocks are numbered in the order of their first bytes
			return g, nil, fmt.Errorf("%w: gather speaks of block %d after %d others, at most %d are possible", errFrame, b, len(sizes), maxGathered)
		}
		if b == len(sizes) {
			sizes = append(sizes, 0)
		}
		sizes[b] += n
		g.add(n, b)
	}
	if r.short || len(sizes) == 0 {
		return g, nil, fmt.Errorf("%w: gather is cut short or names no block", errFrame)
	}
	return g, sizes, nil
}
