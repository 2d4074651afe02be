package frame

import (
	"encoding/binary"
	"fmt"
)

const (
	// MaxRuns bounds the runs of a Gather, and with them the memory that it takes.
	MaxRuns = 1 << 16
	// MaxGathered bounds the Blocks of a Gather.
	MaxGathered = 1024
)

// AppendLiteral appends to the body of a Gather a run of bytes that are no block's.
func AppendLiteral(body, run []byte) []byte {
	return append(binary.AppendUvarint(body, uint64(len(run))<<1), run...)
}

// AppendRun appends to the body of a Gather a run of the next n bytes of a block. Blocks are numbered from 0, in the
// order of their first bytes.
func AppendRun(body []byte, n, block int) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(body, uint64(n)<<1|1), uint64(block))
}

// ParseGather checks the body of a Gather frame and returns the bytes that its runs take of each Block that follows.
func ParseGather(body []byte) (sizes []int, err error) {
	r := Fields{B: body}
	size, count := 0, 0
	for len(r.B) > 0 && !r.Short {
		head := r.Int()
		n := head >> 1
		if n == 0 || n > MaxBlock-size {
			return nil, fmt.Errorf("%w: Gather frame of more than %d bytes, or an empty run", ErrFrame, MaxBlock)
		}
		size += n
		if count++; count > MaxRuns {
			return nil, fmt.Errorf("%w: Gather frame of more than %d runs", ErrFrame, MaxRuns)
		}
		if head&1 == 0 {
			r.Next(n)
			continue
		}
		b := r.Int()
		if b > len(sizes) || b >= MaxGathered { // blocks are numbered in the order of their first bytes
			return nil, fmt.Errorf("%w: Gather frame names block %d after %d others, at most %d are possible", ErrFrame, b, len(sizes), MaxGathered)
		}
		if b == len(sizes) {
			sizes = append(sizes, 0)
		}
		sizes[b] += n
	}
	if r.Short || len(sizes) == 0 {
		return nil, fmt.Errorf("%w: Gather frame is cut short or names no block", ErrFrame)
	}
	return sizes, nil
}

// gatheredAtOnce is how many runs of a Gather are delivered at once.
const gatheredAtOnce = 64

// DeliverRuns delivers the runs of a Gather's body, some at a time and without copying them. ParseGather must have
// checked the body. blocks are the elements of its Blocks; DeliverRuns cuts them.
func DeliverRuns(body []byte, blocks [][]byte, deliver func(runs ...[]byte) error) error {
	runs := make([][]byte, 0, gatheredAtOnce)
	for r := (Fields{B: body}); len(r.B) > 0; {
		head := r.Int()
		n := head >> 1
		if head&1 == 0 {
			runs = append(runs, r.Next(n))
		} else {
			b := r.Int()
			runs = append(runs, blocks[b][:n])
			blocks[b] = blocks[b][n:]
		}
		if len(runs) == cap(runs) || len(r.B) == 0 {
			if err := deliver(runs...); err != nil {
				return err
			}
			runs = runs[:0]
		}
	}
	return nil
}
