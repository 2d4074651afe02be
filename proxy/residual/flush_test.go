package residual

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// The flushed value and the rounding error that is left add up to value and residual, in every type.
func TestFlush(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		const n = 1000
		x, residual, y := make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], residual[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
		}
		m := New(1<<20, Events{}).Dense("job", tensor.Tensor{Key: 1, DType: d, Size: n * d.Size()}, true)
		b := make([]byte, n*d.Size())
		tensor.FromFloat32(b, x, d)
		tensor.ToFloat32(x, b, d)
		copy(m.residual, residual)
		m.Flush(b, m.residual)
		tensor.ToFloat32(y, b, d)
		for i := range x {
			if lost := float64(x[i]) + float64(residual[i]) - float64(y[i]) - float64(m.residual[i]); math.Abs(lost) > 1e-6 {
				t.Fatalf("%v: %v with the residual %v became %v with %v", d, x[i], residual[i], y[i], m.residual[i])
			}
			if limit := map[tensor.DType]float64{tensor.BFloat16: 0.05, tensor.Float16: 0.005}[d]; math.Abs(float64(m.residual[i])) > max(limit, 1e-6) {
				t.Fatalf("%v: a residual of %v is left", d, m.residual[i])
			}
		}
	}
	m := New(1<<20, Events{}).Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 8}, true)
	b := make([]byte, 8)
	tensor.FromFloat32(b, []float32{math.MaxFloat32, 1}, tensor.Float32)
	copy(m.residual, []float32{math.MaxFloat32, 1})
	m.Flush(b, m.residual)
	if y := tensor.View(b); y[0] != math.MaxFloat32 || y[1] != 1 || m.residual[1] != 1 {
		t.Errorf("a sum beyond all numbers: %v, residual %v", y, m.residual)
	}
	wide := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1))
	wide = binary.LittleEndian.AppendUint64(wide, math.Float64bits(math.Inf(1)))
	before, owed := bytes.Clone(wide), []float32{2, 3}
	Flush(tensor.Float64, wide, owed)
	if !bytes.Equal(wide, before) || !slices.Equal(owed, []float32{2, 3}) {
		t.Errorf("a sum that is infinite: %x, residual %v", wide, owed)
	}
}
