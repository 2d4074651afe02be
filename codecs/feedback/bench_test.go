package feedback_test

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

func BenchmarkDrift(b *testing.B) {
	residual, value := make([]float32, 1<<16), make([]float32, 1<<16)
	for i := range residual {
		residual[i], value[i] = float32(i%97), float32(i%89)
	}
	b.SetBytes(4 << 16)
	for b.Loop() {
		feedback.Drift(residual, value)
	}
}

func BenchmarkControl(b *testing.B) {
	c, err := all.New("3lc")
	if err != nil {
		b.Fatal(err)
	}
	src := codectest.Gaussian.Fill(tensor.Float32, 1<<18, 1)
	for name, control := range map[string]*feedback.Control{"without": nil, "with": new(feedback.Control)} {
		b.Run(name, func(b *testing.B) {
			e, err := feedback.NewControlled(c, tensor.Float32, make([]float32, 1<<18), control)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(1 << 20)
			var out []byte
			for b.Loop() {
				if out, err = e.Append(out[:0], src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
