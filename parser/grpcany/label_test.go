package grpcany

import (
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

// Leaves are named by the text beside them, their method, and the numbers of their fields.
func TestNamesForPeople(t *testing.T) {
	p := fresh()
	parsertest.Find(t, p, conn(1), round(t, 1000, "one", 1, 2))
	got := parsertest.Labels(t, p, conn(1), round(t, 1000, "one", 11, 12))
	want := [2][]parser.Label{
		parser.Client: {{Name: "layer0, Aggregator.SendResults field 5.7"}, {Name: "layer1, Aggregator.SendResults field 5.7"}},
		parser.Server: {{Name: "layer0, Aggregator.GetTensor field 3.7"}, {Name: "layer1, Aggregator.GetTensor field 3.7"}},
	}
	for side := range want {
		if !slices.Equal(got[side], want[side]) {
			t.Errorf("%+v, want %+v", got[side], want[side])
		}
	}
}
