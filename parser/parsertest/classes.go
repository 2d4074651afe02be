package parsertest

import (
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// Classes tells the class of every byte of both directions.
type Classes struct {
	Client, Server []Span // of the bytes that the client and the server sent
}

// A Span is the longest run of bytes of one kind: opaque bytes, or consecutive bytes of one value of a tensor.
type Span struct {
	Len    int
	Tensor tensor.Tensor // at the first byte
}

type runs []Span

// add appends a segment, joining it to the last run where it goes on with it.
func (r runs) add(seg parser.Segment) runs {
	if n := len(r); n > 0 && r[n-1].continues(seg.Tensor) {
		r[n-1].Len += seg.Len
		return r
	}
	return append(r, Span(seg))
}

// continues reports whether a segment of t continues r.
func (r Span) continues(t tensor.Tensor) bool { return r.advance(r.Len) == t }

// advance returns r's tensor as it is n bytes on.
func (r Span) advance(n int) tensor.Tensor {
	t := r.Tensor
	if t.Size > 0 {
		t.Off += n
		t.Hold = max(0, t.Hold-n)
	}
	return t
}

func (r runs) end() int {
	n := 0
	for _, x := range r {
		n += x.Len
	}
	return n
}

func (r runs) truncate(n int) runs {
	var out runs
	for _, x := range r {
		if x.Len = min(x.Len, n); x.Len > 0 {
			out = append(out, x)
			n -= x.Len
		}
	}
	return out
}

// Diff describes the first difference between c and d, and is empty if there is none.
func (c Classes) Diff(d Classes) string {
	if s := runs(c.Client).diff(d.Client); s != "" {
		return "from the client: " + s
	}
	if s := runs(c.Server).diff(d.Server); s != "" {
		return "from the server: " + s
	}
	return ""
}

func (r runs) diff(q runs) string {
	at := 0
	for i := range max(len(r), len(q)) {
		switch {
		case i >= len(r) || i >= len(q):
			return fmt.Sprintf("at byte %d: one ends, the other goes on", at)
		case r[i].Len != q[i].Len || !Same(r[i].Tensor, q[i].Tensor):
			return fmt.Sprintf("at byte %d: %d bytes of %+v, and else %d bytes of %+v", at, r[i].Len, r[i].Tensor, q[i].Len, q[i].Tensor)
		}
		at += r[i].Len
	}
	return ""
}

// Same reports whether two parsers have said the same of a tensor. The samples of weights to which they point are each
// parser's own.
func Same(t, u tensor.Tensor) bool {
	p, q := t.Placed, u.Placed
	t.Placed, u.Placed = nil, nil
	return t == u && (p == nil) == (q == nil) && (p == nil || slices.Equal(p.Offsets, q.Offsets))
}
