package feedback

import "testing"

func BenchmarkDrift(b *testing.B) {
	residual, value := make([]float32, 1<<16), make([]float32, 1<<16)
	for i := range residual {
		residual[i], value[i] = float32(i%97), float32(i%89)
	}
	b.SetBytes(4 << 16)
	for b.Loop() {
		Drift(residual, value)
	}
}
