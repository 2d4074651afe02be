package gradients

import (
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// The recordings have as many zeros as their descriptions say.
func TestRecordings(t *testing.T) {
	zeros := map[string][2]float64{"cnn": {0, 0.01}, "mlp": {0.1, 0.5}, "lm": {0.1, 0.4}, "pseudo": {0, 0.01}}
	for _, r := range All() {
		if r.DType != tensor.Float32 || r.Cols != 65536 {
			t.Errorf("%s: %d x %d of %v", r.Name, r.Rows, r.Cols, r.DType)
		}
		n := 0
		for _, x := range tensor.View(r.Data) {
			if x == 0 {
				n++
			}
		}
		if part := float64(n) / float64(r.Rows*r.Cols); part < zeros[r.Name][0] || part > zeros[r.Name][1] {
			t.Errorf("%s: %.1f %% are zero, want %v", r.Name, 100*part, zeros[r.Name])
		}
	}
}
