package frame

import (
	"bytes"
	"errors"
	"testing"
)

var someParts = []Part{
	{N: 3, Literal: []byte("abc")},
	{N: 70_000, Value: ValueRef{Epoch: 1, ID: 1 << 40, Size: 100_000}, From: 30_000, Hash: 1<<63 + 7},
	{N: 1, Value: ValueRef{ID: 2, Size: 1}},
	{N: 1, Literal: []byte("d")},
}

// parsed returns the parts of a body.
func parsed(body []byte) (parts []Part, size int, err error) {
	size, err = EachPart(body, func(p *Part) error {
		parts = append(parts, *p)
		return nil
	})
	return parts, size, err
}

// Parts are read as they were written.
func TestPartsSurvive(t *testing.T) {
	got, size, err := parsed(AppendParts(nil, someParts))
	if err != nil || size != 70_005 || len(got) != len(someParts) {
		t.Fatalf("%d parts of %d bytes, %v", len(got), size, err)
	}
	for i, p := range someParts {
		if g := got[i]; g.N != p.N || g.Value != p.Value || g.From != p.From || g.Hash != p.Hash || !bytes.Equal(g.Literal, p.Literal) {
			t.Errorf("part %d is %+v, want %+v", i, g, p)
		}
	}
}

// Parts that lie outside of their value, deliver too much, or end early are no parts.
func TestPartsAreBounded(t *testing.T) {
	value := ValueRef{Epoch: 1, ID: 1, Size: 100}
	for name, body := range map[string][]byte{
		"none":            nil,
		"beyond the end":  AppendParts(nil, []Part{{N: 51, Value: value, From: 50}}),
		"behind the end":  AppendParts(nil, []Part{{N: 1, Value: value, From: 101}}),
		"an empty part":   AppendParts(nil, []Part{{N: 0, Value: value}}),
		"a huge value":    AppendParts(nil, []Part{{N: 1, Value: ValueRef{ID: 1, Size: MaxBlock + 1}}}),
		"too many bytes":  AppendParts(nil, []Part{{N: MaxBlock, Value: ValueRef{ID: 1, Size: MaxBlock}}, {N: 1, Value: value}}),
		"a short literal": AppendParts(nil, someParts[:1])[:3],
		"a short number":  AppendParts(nil, someParts[1:2])[:5],
		"too many parts":  bytes.Repeat(AppendParts(nil, someParts[3:]), MaxParts+1),
	} {
		if _, _, err := parsed(body); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v, want a bad frame", name, err)
		}
	}
}

// Any body is parts or none; parts lie within their values and are not more than a frame may deliver.
func FuzzParts(f *testing.F) {
	f.Add(AppendParts(nil, someParts))
	f.Fuzz(func(t *testing.T, body []byte) {
		parts, size, err := parsed(body)
		if err != nil {
			return
		}
		for _, p := range parts {
			if size -= p.N; p.N <= 0 || p.Value.ID == 0 && len(p.Literal) != p.N || p.Value.ID != 0 && (p.From < 0 || p.N > p.Value.Size-p.From) {
				t.Fatalf("part %+v", p)
			}
		}
		if size != 0 {
			t.Fatalf("the parts have %d bytes other than was said", size)
		}
	})
}
