package flower

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/flower/flowersim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A part of an array that ends within an element has no type; one of whole elements has the array's.
func TestPartsOfElements(t *testing.T) {
	for size, want := range map[int]tensor.DType{1024: tensor.Float32, 1022: tensor.NoDType} {
		m := sim.ModelObject("reply", sim.ArrayObject(npyOf("<f4", 4, 700, 1), size))
		all := parsertest.Find(t, fresh(), conn(1), push(5, m))[parser.Client]
		if len(all) != 3 || all[0].DType != tensor.Float32 || all[1].DType != want || all[1].Size != size {
			t.Errorf("parts of %d bytes: %+v", size, all)
		}
	}
}

// No more bytes of a tensor are said to follow without an answer than lie in the frame.
func TestHoldEndsWithTheFrame(t *testing.T) {
	file := npyOf("<f4", 4, 100, 1)
	body := sim.Field(nil, 4, sim.Field(nil, 1, sim.Field(nil, 1, file)))
	for _, short := range []int{0, 1} {
		c := newConnection(new(facts), conn(1)).open("/flwr.proto.FlowerService/Join")
		m := c.message(parser.Server, len(body))
		elements := 0
		for b := body; len(b) > 0; {
			seg := m.Next(b, len(b)-short)
			if seg.Tensor.Size > 0 {
				elements += seg.Len
				if want := (1 - short) * (400 - seg.Tensor.Off); seg.Tensor.Hold != want {
					t.Errorf("%d bytes less than the frame: Hold is %d, want %d", short, seg.Tensor.Hold, want)
				}
			}
			b = b[seg.Len:]
		}
		if elements != 400 {
			t.Errorf("%d bytes of elements", elements)
		}
	}
}

// Of a record so many keys are remembered, however many it has.
func TestKeysAreBounded(t *testing.T) {
	m := newConnection(new(facts), conn(1)).open("/flwr.proto.Fleet/PushMessages").message(parser.Client, 1<<30)
	for p, step := range m.layout {
		if step != key {
			continue
		}
		for i := range maxKeys + 9 {
			m.Kept(p, fmt.Append(nil, i))
		}
	}
	if len(m.keys) != maxKeys || len(m.names) != maxKeys {
		t.Errorf("%d keys and %d names are remembered, want %d", len(m.keys), len(m.names), maxKeys)
	}
}

// An id has 64 hexadecimal digits.
func TestIDs(t *testing.T) {
	for text, want := range map[string]bool{strings.Repeat("0f", 32): true, strings.Repeat("0f", 31): false, strings.Repeat("0f", 33): false, strings.Repeat("0", 65): false,
		strings.Repeat("0g", 32): false, "": false} {
		if _, ok := parseID([]byte(text)); ok != want {
			t.Errorf("%q is an id: %v", text, ok)
		}
	}
}
