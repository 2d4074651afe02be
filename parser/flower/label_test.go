package flower

import (
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/flower/flowersim"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

// Arrays are named by their keys, or their numbers, with their shapes.
func TestNamesForPeople(t *testing.T) {
	w := grpctest.New(t)
	record := sim.RecordSet("fitins.parameters", modelOf(1)[:3], "conv1.weight", "steps", "fc.bias")
	w.Unary("/flwr.proto.Fleet/PullTaskIns", nil, sim.Nested(sim.Field(sim.Field(nil, 2, []byte("id")), 4, sim.Field(nil, 8, record)), 2), 100)
	got := parsertest.Labels(t, fresh(), conn(1), w.Exchange())[parser.Server]
	if want := []parser.Label{{Name: "conv1.weight", Shape: "300"}, {Name: "steps", Shape: "1"}, {Name: "fc.bias", Shape: "40"}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	got = parsertest.Labels(t, fresh(), conn(1), joined(t, 5000))[parser.Client]
	if len(got) < 3 || got[0] != (parser.Label{Name: "array 1", Shape: "300"}) || got[2] != (parser.Label{Name: "array 3", Shape: "40"}) {
		t.Errorf("of start_client: %+v", got)
	}
	down, up, _ := job(1)
	got = parsertest.Labels(t, fresh(), conn(1), append(pull(down), push(5, up)...))[parser.Server]

	want := []parser.Label{{Name: "array 1, part 1", Shape: "700"}, {Name: "array 1, part 2"}, {Name: "array 1, part 3"}, {Name: "array 2", Shape: "3"}, {Name: "array 3", Shape: "50"}}
	if !slices.Equal(got, want) {
		t.Errorf("of objects: %+v, want %+v", got, want)
	}
}
