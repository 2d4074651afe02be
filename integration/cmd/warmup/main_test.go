package main

import (
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/cmd/papers/cluster"
)

// Each way is a job that cluster can train, and its name tells it from the others.
func TestWays(t *testing.T) {
	m := measurement{Workers: 2, Batch: 32, Steps: 300}
	names := map[string]bool{}
	for _, r := range ways() {
		j, err := m.job(&r, 1)
		if err != nil {
			t.Fatal(err)
		}
		if (j.Push.Codec == nil) != (r.Codec == "") || j.Push.Codec != nil && (!j.Push.Feedback || j.Push.Codec.String() != r.Codec) || j.EarlySteps != int(300*r.EarlyPart) {
			t.Errorf("%s: %+v", r.name(), j)
		}
		names[r.name()] = true
	}
	for _, want := range []string{"exact", "3lc, int4 for the first 10 %, momentum correction", "topk, exact for the first 10 %"} {
		if !names[want] {
			t.Errorf("no way is %q: %v", want, names)
		}
	}
}

func TestSum(t *testing.T) {
	r := row{Codec: "3lc"}
	r.sum([]cluster.Outcome{{Accuracy: 0.8, Pushed: cluster.Traffic{Values: 100, Bytes: 40}}, {Accuracy: 0.9, Pushed: cluster.Traffic{Values: 100, Bytes: 60}}}, 0.86)
	if r.Ratio != 8 || r.Mean < 0.849 || r.Mean > 0.851 || r.Points > -0.99 || r.Points < -1.01 || len(r.Accuracy) != 2 {
		t.Errorf("%+v", r)
	}
	m := measurement{Steps: 300, Seeds: 2, Rows: []row{{}, r}}
	if text := m.markdown(); !strings.Contains(text, "| 3lc | 8.0x | 85.00 % | -1.00 |") {
		t.Error(text)
	}
}
