package parsertest

import (
	"bytes"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
)

// What is folded is unfolded: the same bytes from the same sides, in the same order.
func TestFold(t *testing.T) {
	x := Exchange{{From: parser.Client, Bytes: []byte("hello")}, {From: parser.Server, Bytes: bytes.Repeat([]byte{7}, 70_000)}, {From: parser.Client, Bytes: []byte{0}}}
	var want, got [2][]byte
	for _, turn := range x {
		want[turn.From] = append(want[turn.From], turn.Bytes...)
	}
	last := parser.Side(0xff)
	var order []parser.Side
	for _, turn := range Unfold(Fold(x)) {
		if got[turn.From] = append(got[turn.From], turn.Bytes...); turn.From != last {
			last = turn.From
			order = append(order, last)
		}
	}
	if !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) || len(order) != 3 || order[0] != parser.Client {
		t.Errorf("%d and %d bytes in %d turns, want %d and %d in 3", len(got[0]), len(got[1]), len(order), len(want[0]), len(want[1]))
	}
}
