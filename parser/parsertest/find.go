package parsertest

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Found tensor is one that a parser has found, with its bytes, unmasked.
type Found struct {
	tensor.Tensor
	Data []byte
}

// Find returns the tensors of an exchange by their sides, in the order in which they begin. It fails the test if bytes
// of a tensor are out of order.
func Find(t testing.TB, p parser.Protocol, c parser.Conn, x Exchange) (all [2][]Found) {
	t.Helper()
	client, server := p.New(c)
	parsers := [2]parser.Parser{client, server}
	var open [2]map[uint64]int // in all, by key
	for side := range open {
		open[side] = map[uint64]int{}
	}
	for _, piece := range x {
		list, open := &all[piece.From], open[piece.From]
		for b := piece.Bytes; len(b) > 0; {
			seg, err := parsers[piece.From].Next(b)
			if err != nil {
				t.Fatal(err)
			}
			if v := seg.Tensor; v.Size > 0 {
				if v.Off == 0 {
					open[v.Key] = len(*list)
					*list = append(*list, Found{Tensor: v})
				}
				i, ok := open[v.Key]
				if !ok || len((*list)[i].Data) != v.Off {
					t.Fatalf("%+v goes on nowhere", v)
				}
				f := &(*list)[i]
				f.Data = append(f.Data, b[:seg.Len]...)
				v.Mask.From(v.Off).Apply(f.Data[v.Off:])
			}
			b = b[seg.Len:]
		}
	}
	return all
}
