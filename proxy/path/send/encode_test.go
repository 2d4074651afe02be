package send

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A codec that breaks has its block travel raw, and the others after it; all bytes arrive.
func TestBrokenEncoder(t *testing.T) {
	const size = 3 * 4096
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "broken"})
	var sent []byte
	for range 3 {
		sent = append(sent, pathtest.ToyPiece(1, size, make([]byte, size))...)
	}
	if err := s.takes(sent); err != nil {
		t.Fatal(err)
	}
	if got := s.delivered(t); !bytes.Equal(got, sent) {
		t.Errorf("%d bytes arrive of %d, or they differ", len(got), len(sent))
	}
	if n := kinds(t, s.sink.Sent())[frame.Block]; n == 0 {
		t.Error("no block was tried")
	}
	pathtest.Whole(t, s.env)
}

// Of a codec that breaks half way no residual is left: its block brings all, and a flush would bring it again. One that
// is unsuited leaves the residual as it was.
func TestBrokenEncoderLeavesNoResidual(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{})
	for name, c := range map[string]struct {
		err  error
		want []float32
	}{"broken": {nil, []float32{0, 0}}, "unsuited": {codecs.ErrUnsuited, []float32{1, 2}}} {
		for _, with := range []bool{false, true} {
			residual := []float32{1, 2}
			b := &block{plan: &plan{}, decl: frame.Declaration{DType: tensor.Float32, N: 2}, data: make([]byte, 8), buf: make([]byte, frame.MaxHeader)}
			b.slot = &slot{enc: &halfWay{residual, c.err}, residual: residual}
			if with {
				b.slot.residual, b.slot.external, b.residual = nil, new(external), residual
			}
			if _, err := s.encode.append(b); err == nil || !slices.Equal(residual, c.want) {
				t.Errorf("%s, residual with the block: %v: residual %v, want %v (%v)", name, with, residual, c.want, err)
			}
		}
	}
}

// A halfWay is a broken encoder, which leaves a part of the residual, or one that answers an error and leaves none.
type halfWay struct {
	residual []float32
	err      error
}

func (h *halfWay) Append(dst, _ []byte) ([]byte, error) {
	if h.err == nil {
		h.residual[0] = 100
		panic("broken on purpose")
	}
	return dst, h.err
}

// Each slot is declared once, just before its first block, and again when another codec has its place.
func TestSlotsAreDeclaredOnce(t *testing.T) {
	const size = 4096
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "lossless"})
	var sent []byte
	for range 10 * lanes {
		sent = append(sent, pathtest.ToyPiece(1, size, make([]byte, size))...)
	}
	if err := s.takes(sent); err != nil {
		t.Fatal(err)
	}
	if got := s.delivered(t); !bytes.Equal(got, sent) {
		t.Error("other bytes arrive")
	}
	if k := kinds(t, s.sink.Sent()); k[frame.Declare] != lanes || k[frame.Block] != 10*lanes {
		t.Errorf("frames %v, want %d declarations of blocks of one shape", k, lanes)
	}
	pathtest.Whole(t, s.env)
}
