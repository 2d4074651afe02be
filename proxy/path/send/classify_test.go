package send

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A failing parser gives up with err once it has classified left bytes.
type failing struct {
	parser.Parser
	left int
	err  error
}

func (p *failing) Next(b []byte) (parser.Segment, error) {
	if p.left <= 0 {
		return parser.Segment{}, p.err
	}
	seg, err := p.Parser.Next(b[:min(len(b), p.left)])
	p.left -= seg.Len
	return seg, err
}

// When a parser says that an earlier verdict was false, the connection ends if loss was used on it, and only then:
// without loss everything has arrived as it was, and the rest travels verbatim.
func TestFalseVerdictAfterLossEndsTheConnection(t *testing.T) {
	const size = 64 << 10
	values := func(step int) []byte {
		v, b := make([]float32, size/4), make([]byte, size)
		for i := range v {
			v[i] = float32((i*7919+step*104729)%1000)/1000 - 0.5
		}
		tensor.FromFloat32(b, v, tensor.Float32)
		return b
	}
	for _, c := range []struct {
		proof tensor.Proof
		codec string
		err   error
		lossy bool
		ends  bool
	}{
		{tensor.ByUser, "3lc(s=1.75)", fmt.Errorf("no sums: %w", parser.ErrReset), true, true},
		{tensor.ByUser, "3lc(s=1.75)", parser.ErrForeign, true, false},
		{tensor.ByUser, "3lc(s=1.75)", fmt.Errorf("no longer: %w", parser.ErrForget), true, false},
		{tensor.ByUser, "wide", fmt.Errorf("no sums: %w", parser.ErrReset), false, false},
		{tensor.ByCall, "wide", fmt.Errorf("no sums: %w", parser.ErrReset), false, false},
	} {
		rule := policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: c.codec}
		s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient, Proof: c.proof}, rule)
		var sent []byte
		for step := range 6 {
			sent = append(sent, pathtest.ToyPiece(1, size, values(step))...)
		}
		s.classify.parser = &failing{Parser: s.seen.Parser, left: len(sent), err: c.err}
		if err := s.takes(sent); err != nil {
			t.Fatal(err)
		}
		if s.choose.lossy != c.lossy {
			t.Fatalf("%s: loss was used: %v, want %v", c.codec, s.choose.lossy, c.lossy)
		}
		rest := []byte("the rest of the stream")
		if tensors, _, _ := s.env.Residuals.Held(); (tensors > 0) != c.lossy {
			t.Fatalf("%s: %d tensors have a past", c.codec, tensors)
		}
		err := s.takes(rest)
		forgets := errors.Is(c.err, parser.ErrReset) || errors.Is(c.err, parser.ErrForget)
		if tensors, _, _ := s.env.Residuals.Held(); (tensors == 0) != (forgets || !c.lossy) {
			t.Errorf("%s, and the parser says %v: %d tensors have a past still", c.codec, c.err, tensors)
		}
		if c.ends != (err != nil) || c.ends && !errors.Is(err, parser.ErrReset) {
			t.Errorf("%s, and the parser says %v: %v", c.codec, c.err, err)
		}
		if got := s.delivered(t); !c.ends && !bytes.HasSuffix(got, rest) || len(got) != len(sent)+len(rest) && !c.ends {
			t.Errorf("%s, and the parser says %v: %d bytes arrive of %d", c.codec, c.err, len(got), len(sent)+len(rest))
		}
	}
}

// A fickle parser gives up once, and would go on afterwards.
type fickle struct {
	parser.Parser
	asked int
}

func (p *fickle) Next(b []byte) (parser.Segment, error) {
	if p.asked++; p.asked == 1 {
		return parser.Segment{}, parser.ErrForeign
	}
	return p.Parser.Next(b)
}

// A parser that has given up is not asked again, and all that follows travels verbatim.
func TestParserThatGaveUpIsNotAskedAgain(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "wide"})
	p := &fickle{Parser: s.seen.Parser}
	s.classify.parser = p
	piece := pathtest.ToyPiece(1, 8000, make([]byte, 8000))
	for range 3 {
		if err := s.takes(piece); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.delivered(t); !bytes.Equal(got, bytes.Repeat(piece, 3)) {
		t.Errorf("%d bytes arrive of %d, or they differ", len(got), 3*len(piece))
	}
	if k := kinds(t, s.sink.Sent()); p.asked != 1 || k[frame.Block] != 0 {
		t.Errorf("the parser is asked %d times, and %v leave", p.asked, k)
	}
}

// A parser that gives up amid a block has all bytes of the block arrive, and holds nothing up.
func TestParserGivesUpAmidABlock(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "wide"})
	sent := pathtest.ToyPiece(1, 8000, make([]byte, 8000))
	s.classify.parser = &failing{Parser: s.seen.Parser, left: 5000, err: parser.ErrForeign}
	if err := s.takes(sent); err != nil {
		t.Fatal(err)
	}
	if s.cut.group.open != 0 {
		t.Error("bytes still wait for a block whose rest nobody will recognize")
	}
	if got := s.delivered(t); !bytes.Equal(got, sent) {
		t.Errorf("%d bytes arrive of %d, or they differ", len(got), len(sent))
	}
	pathtest.Whole(t, s.env)
}
