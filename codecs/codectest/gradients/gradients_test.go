package gradients

import (
	"crypto/sha256"
	"math"
	"os"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
	"github.com/gradproxy/gradproxy/integration/require"
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

// Sequences that figures about trainings are measured on have at least 200 steps, each a different gradient without
// infinities.
func TestRecordedSequences(t *testing.T) {
	for _, file := range require.Gradients(t) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		a, err := npy.Parse(b)
		if err != nil || a.DType != tensor.Float32 || a.Rows < 200 {
			t.Fatalf("%s: %d steps of %d %v (%v); want 200 steps of float32 or more", file, a.Rows, a.Cols, a.DType, err)
		}
		seen := map[[sha256.Size]byte]int{}
		for step := range a.Rows {
			sum := sha256.Sum256(a.Row(step))
			if same, ok := seen[sum]; ok {
				t.Errorf("%s: steps %d and %d are the same", file, same, step)
			}
			seen[sum] = step
		}
		for i, x := range tensor.View(a.Data) {
			if x != x || math.IsInf(float64(x), 0) {
				t.Fatalf("%s: value %d is %v", file, i, x)
			}
		}
	}
}
