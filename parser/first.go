package parser

import (
	"fmt"
)

// First returns a Parser that agrees with the first of ps that has understood every byte. Until one sees
// a tensor, or is left alone, all bytes are opaque. Recognizing a protocol needs nothing else. When none is left it
// returns the error of the last one. It is a Counter, and counts as the one that it agrees with does, if that is one.
func First(ps ...Parser) Parser {
	if len(ps) == 1 {
		return ps[0]
	}
	return &first{left: append([]Parser(nil), ps...)}
}

type first struct {
	left []Parser // the parsers that have understood every byte so far, in order
	seen Segment  // the segment that the chosen one (left[0] alone) has returned for bytes that come again
}

func (f *first) Next(b []byte) (Segment, error) {
	if f.seen.Len > 0 {
		return f.again(len(b)), nil
	}
	if len(f.left) == 1 {
		return f.left[0].Next(b)
	}
	err := fmt.Errorf("parser: no protocol to try: %w", ErrForeign)
	left := f.left[:0]
	for _, p := range f.left {
		opaque, seg, e := skim(p, b)
		if e != nil {
			err = e
			continue
		}
		if seg.Len == 0 {
			left = append(left, p)
			continue
		}
		f.left, f.seen = []Parser{p}, seg
		if opaque > 0 {
			return Segment{Len: opaque}, nil
		}
		return f.again(len(b)), nil
	}
	clear(f.left[len(left):])
	f.left = left
	if len(left) == 0 {
		return Segment{}, err
	}
	return Segment{Len: len(b)}, nil
}

// again repeats at most n bytes of the tensor segment that was seen ahead of its time.
func (f *first) again(n int) Segment {
	s := f.seen
	s.Len = min(s.Len, n)
	f.seen.Len -= s.Len
	f.seen.Tensor.Off += s.Len
	f.seen.Tensor.Hold = max(0, f.seen.Tensor.Hold-s.Len)
	return s
}

// skim gives b to p until p sees a tensor, whose segment it returns with the number of opaque bytes before it.
func skim(p Parser, b []byte) (opaque int, seg Segment, err error) {
	for opaque < len(b) {
		seg, err = p.Next(b[opaque:])
		if err != nil || seg.Tensor.Size != 0 {
			return opaque, seg, err
		}
		opaque += seg.Len
	}
	return opaque, Segment{}, nil
}

// counter returns the parser that First agrees with, or whose protocol is recognized; nil: there is none that counts.
func (f *first) counter() Counter {
	for _, p := range f.left {
		if c, ok := p.(Counter); ok && (len(f.left) == 1 || c.Recognized()) {
			return c
		}
	}
	return nil
}

// Messages implements Counter.
func (f *first) Messages() (all, payloads int) {
	if c := f.counter(); c != nil {
		return c.Messages()
	}
	return 0, 0
}

// Recognized implements Counter.
func (f *first) Recognized() bool {
	c := f.counter()
	return c != nil && c.Recognized()
}
