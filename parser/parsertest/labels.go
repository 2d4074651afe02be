package parsertest

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
)

// Labels returns the names of an exchange's tensors, by side, in the order in which they begin.
func Labels(t *testing.T, p parser.Protocol, c parser.Conn, x Exchange) (all [2][]parser.Label) {
	t.Helper()
	client, server := p.New(c)
	parsers := [2]parser.Parser{client, server}
	for _, piece := range x {
		for b := piece.Bytes; len(b) > 0; {
			seg, err := parsers[piece.From].Next(b)
			if err != nil {
				t.Fatal(err)
			}
			if seg.Tensor.Size > 0 && seg.Tensor.Off == 0 {
				all[piece.From] = append(all[piece.From], parser.LabelOf(parsers[piece.From], seg.Tensor))
			}
			b = b[seg.Len:]
		}
	}
	return all
}
