package demo

import (
	"context"
	"io"
	"testing"
)

// Both hospitals end with the server's last model, the same in each run, and the model and the changes cross the link
// for each of them.
func TestDifferences(t *testing.T) {
	o := small()
	o.Wires, o.Codes, o.Steps = []string{"nvflare"}, []string{Lossless}, localSteps+1
	o.Through = func(_ context.Context, r Run, between Between) (Path, error) {
		if want := (Run{Wire: "nvflare", Name: Lossless}); r != want {
			t.Errorf("proxies are asked for %+v, want %+v", r, want)
		}
		return &relay{between: between, plain: true}, nil
	}
	report, err := Do(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// 64-32-10 is 9,640 bytes; in each of two rounds it goes down to two hospitals and the changes come back, and down
	// once more at the end.
	const minimum = (2*4 + 2) * 9640
	const maximum = minimum + 2*(2*24+22)*1200 // headers of a hospital's frames: 24 in a round, 22 before and after
	for _, r := range report.Runs {
		if r.Wire != "nvflare" || !r.ReplicasIdentical || r.ReplicaDistance != 0 || !r.SameAsDirect || r.Accuracy <= 0 {
			t.Errorf("%+v", r)
		}
		if r.AppBytes < minimum || r.AppBytes > maximum || r.WANBytes < r.AppBytes || r.WANBytes > 2*r.AppBytes {
			t.Errorf("%s: %d bytes of the app, %d on the link, want %d to %d", r.Name, r.AppBytes, r.WANBytes, minimum, maximum)
		}
	}
}
