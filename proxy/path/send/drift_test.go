package send

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A drifts notes the measurements of blocks that have lost something.
type drifts struct {
	path.NoMetrics
	ratio, relative []float64
}

func (d *drifts) Drifted(_ string, _ tensor.Role, ratio, relative float64) {
	d.ratio, d.relative = append(d.ratio, ratio), append(d.relative, relative)
}

// The residual and the relative error of tensors of every float type are measured, once in eight blocks, and are the
// ones of the bytes that arrive.
func TestEveryFloatTypeIsMeasured(t *testing.T) {
	const n, steps = 4096, 2*driftEvery + 1
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16} {
		t.Run(d.String(), func(t *testing.T) {
			s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient, Proof: tensor.ByUpdate, DType: d}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)"})
			seen := &drifts{}
			s.env.Metrics = seen
			r := rand.New(rand.NewPCG(7, 8))
			size := n * d.Size()
			var sent [steps][]float32
			for i := range sent {
				v, b := make([]float32, n), make([]byte, size)
				for j := range v {
					v[j] = float32(r.NormFloat64())
				}
				tensor.FromFloat32(b, v, d)
				tensor.ToFloat32(v, b, d)
				sent[i] = v
				if err := s.takes(pathtest.ToyPiece(1, size, b)); err != nil {
					t.Fatal(err)
				}
			}
			arrived := s.delivered(t)
			residual := make([]float32, n)
			var ratio, relative []float64
			for i, v := range sent {
				message := arrived[i*(8+size)+8 : (i+1)*(8+size)]
				got, sum := make([]float32, n), make([]float32, n)
				tensor.ToFloat32(got, message, d)
				for j := range v {
					sum[j] = v[j] + residual[j]
					residual[j] = sum[j] - got[j]
				}
				if i%driftEvery == 0 {
					ratio, relative = append(ratio, feedback.Drift(residual, v)), append(relative, feedback.Drift(residual, sum))
				}
			}
			if len(seen.ratio) != len(ratio) {
				t.Fatalf("%d blocks were measured of %d, want %d", len(seen.ratio), steps, len(ratio))
			}
			for i := range ratio {
				if ratio[i] < 0.1 || math.Abs(seen.ratio[i]-ratio[i]) > 1e-3*ratio[i] || math.Abs(seen.relative[i]-relative[i]) > 1e-3*relative[i] {
					t.Errorf("measurement %d: residual %v, relative error %v; want %v and %v", i, seen.ratio[i], seen.relative[i], ratio[i], relative[i])
				}
			}
			if seen.ratio[1] == seen.relative[1] {
				t.Error("the relative error leaves feedback out")
			}
		})
	}
}
