package demo

import (
	"context"
	"io"
	"testing"
)

// Both hospitals end with the server's last model, the same in each run, and the model crosses the link for each of
// them.
func TestFederated(t *testing.T) {
	o := small()
	o.Wires, o.Codes, o.Steps = []string{"flower"}, []string{Lossless}, localSteps+1
	o.Through = func(_ context.Context, r Run, between Between) (Path, error) {
		if want := (Run{Wire: "flower", Name: Lossless}); r != want {
			t.Errorf("proxies are asked for %+v, want %+v", r, want)
		}
		return &relay{between: between, plain: true}, nil
	}
	report, err := Do(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// 64-32-10 is 9,640 bytes; in each of two rounds it goes down twice to two hospitals and comes back once, and once
	// before.
	const minimum = (2*6 + 1) * 9640
	for _, r := range report.Runs {
		if r.Wire != "flower" || !r.ReplicasIdentical || r.ReplicaDistance != 0 || !r.SameAsDirect || r.Accuracy <= 0 {
			t.Errorf("%+v", r)
		}
		if r.AppBytes < minimum || r.AppBytes > 2*minimum || r.WANBytes < r.AppBytes || r.WANBytes > 2*r.AppBytes {
			t.Errorf("%s: %d bytes of the app, %d on the link, want at least %d", r.Name, r.AppBytes, r.WANBytes, minimum)
		}
	}
}

// On Flower's wire one codec is for models, whichever way they go.
func TestCodesOfFlower(t *testing.T) {
	if r := newRun("flower", "int8"); r != (Run{Wire: "flower", Name: "int8", Gradients: "int8", State: "int8"}) || r.promise() != sameReplicas {
		t.Errorf("%+v promises %d", r, r.promise())
	}
}
