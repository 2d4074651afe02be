package parsertest

import (
	"bytes"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
)

// Unfold repieces the bytes that were folded: the same bytes from the same sides, in the same order.
func TestFold(t *testing.T) {
	x := Exchange{{From: parser.Client, Bytes: []byte("hello")}, {From: parser.Server, Bytes: bytes.Repeat([]byte{7}, 70_000)}, {From: parser.Client, Bytes: []byte{0}}}
	var want, got [2][]byte
	for _, piece := range x {
		want[piece.From] = append(want[piece.From], piece.Bytes...)
	}
	last := parser.Side(0xff)
	var order []parser.Side
	for _, piece := range Unfold(Fold(x)) {
		if got[piece.From] = append(got[piece.From], piece.Bytes...); piece.From != last {
			last = piece.From
			order = append(order, last)
		}
	}
	if !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) || len(order) != 3 || order[0] != parser.Client {
		t.Errorf("%d and %d bytes in %d pieces, want %d and %d in 3", len(got[0]), len(got[1]), len(order), len(want[0]), len(want[1]))
	}
}
