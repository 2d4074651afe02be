package nvflare

import (
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

// Arrays are named by the names under which the model has them, with their shapes and the two sites, over each way to
// carry frames.
func TestNamesForPeople(t *testing.T) {
	for _, torch := range []bool{false, true} {
		j := oneRound("WEIGHT_DIFF", torch, 1<<20)
		for name, x := range map[string]parsertest.Exchange{"tcp": j.tcp(), "grpc": j.grpc(t, 1000), "websocket": j.webSocket()} {
			got := parsertest.Labels(t, fresh(), conn(1), x)
			down := []parser.Label{{From: "server", To: "site-1", Name: "fc1.weight", Shape: "700"}, {From: "server", To: "site-1", Name: "fc1.bias", Shape: "30"}, {From: "server", To: "site-1", Name: "steps", Shape: "2"}}
			if !slices.Equal(got[parser.Server], down) {
				t.Errorf("%s: from the server: %+v, want %+v", name, got[parser.Server], down)
			}
			if up := got[parser.Client]; len(up) != 3 && name != "websocket" || len(up) > 0 && (up[0].Name != "fc1.weight" || up[0].From != "site-1") {
				t.Errorf("%s: from the client: %+v", name, up)
			}
		}
	}
	j := oneRound("WEIGHTS", true, 1000) // frames smaller than the array
	got := parsertest.Labels(t, fresh(), conn(1), j.tcp())[parser.Server]
	if len(got) < 4 || !strings.HasPrefix(got[1].Name, "fc1.weight, from byte ") {
		t.Errorf("in pieces: %+v", got)
	}
}
