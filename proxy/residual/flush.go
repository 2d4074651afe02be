package residual

import (
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/tensor"
)

// A residual flush sends a value exactly that could have lost something, with the residual added. Replicas that only
// add up the values that they receive, as replicas of plain SGD do, are then where they would be without any loss, but
// for rounding. Replicas whose optimizer weighs old values less than new ones (momentum), or each by the others (Adam),
// are not: they have already used the values that they received.

// Flush adds residual, which must be a Part of d, to the elements of a block.
func (d *Dense) Flush(block []byte, residual []float32) {
	d.Lock()
	defer d.Unlock()
	Flush(d.dtype, block, residual)
}

// Flush adds residual to the elements of a block, and leaves the rounding error in it. If a sum is no finite number
// both stay as they are.
func Flush(d tensor.DType, block []byte, residual []float32) {
	if d == tensor.Float64 {
		flushFloat64(block, residual)
		return
	}
	x, y := make([]float32, len(residual)), make([]float32, len(residual))
	tensor.ToFloat32(x, block, d)
	for i, r := range residual {
		if y[i] = x[i] + r; y[i]-y[i] != 0 {
			return
		}
	}
	tensor.Round(y, d)
	tensor.FromFloat32(block, y, d)
	for i, r := range residual {
		residual[i] = float32(float64(x[i]) + float64(r) - float64(y[i]))
	}
}

// flushFloat64 is Flush for Float64, whose sums have room for any float32 residual.
func flushFloat64(block []byte, residual []float32) {
	for i, r := range residual {
		if sum := float64At(block, i) + float64(r); sum-sum != 0 {
			return
		}
	}
	for i, r := range residual {
		binary.LittleEndian.PutUint64(block[8*i:], math.Float64bits(float64At(block, i)+float64(r)))
		residual[i] = 0
	}
}

func float64At(block []byte, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(block[8*i:]))
}
