package proxy

import (
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/tensor"
)

// A flush pays what is owed to a tensor: a value that could have lost something travels exactly instead, with the residual
// added. Replicas that only add up what they receive, as those of plain SGD do, are then where they would be without any
// loss, but for rounding. Those whose optimizer weighs old values less than new ones (momentum), or each by the others
// (Adam), are not: they have already used what they received.

// pay adds residual, that of a block, to its elements.
func (m *memory) pay(d tensor.DType, block []byte, residual []float32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed()
	pay(d, block, residual)
}

// pay adds residual to the elements of a block, and leaves in it what rounding takes away. If a sum is no finite number
// all stays as it is.
func pay(d tensor.DType, block []byte, residual []float32) {
	if d == tensor.Float64 {
		payWide(block, residual)
		return
	}
	x, y := make([]float32, len(residual)), make([]float32, len(residual))
	tensor.ToFloat32(x, block, d)
	for i, owed := range residual {
		if y[i] = x[i] + owed; y[i]-y[i] != 0 {
			return
		}
	}
	tensor.Round(y, d)
	tensor.FromFloat32(block, y, d)
	for i, owed := range residual {
		residual[i] = float32(float64(x[i]) + float64(owed) - float64(y[i]))
	}
}

// payWide is pay for Float64, whose sums have room for all that a float32 can owe.
func payWide(block []byte, residual []float32) {
	for i, owed := range residual {
		b := block[8*i:]
		sum := math.Float64frombits(binary.LittleEndian.Uint64(b)) + float64(owed)
		binary.LittleEndian.PutUint64(b, math.Float64bits(sum))
		residual[i] = 0
	}
}
