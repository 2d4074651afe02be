package send

import (
	"bytes"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
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
