package sketchedsgd

import (
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/countsketch"
)

// The parts of a step that take time, of a gradient of 2^20 values with the default sketch, in values a second.
func BenchmarkStep(b *testing.B) {
	const d = 1 << 20
	p := mustPlan(b, Params{D: d, K: d / 100, Columns: d / 32})
	r := rand.New(rand.NewPCG(1, 1))
	g := make([]float32, d)
	for i := range g {
		g[i] = float32(r.NormFloat64())
	}
	s := p.Take()
	s.Insert(0, g)
	encoded, err := s.Append(nil, countsketch.Float32)
	if err != nil {
		b.Fatal(err)
	}
	var pick Picker
	for _, part := range []struct {
		name string
		op   func()
	}{
		{"sketch", func() { s.Reset(); s.Insert(0, g) }},
		{"add", func() {
			if err := s.AddEncoded(encoded); err != nil {
				b.Fatal(err)
			}
		}},
		{"pick", func() { pick.Pick(p, s, 0) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.SetBytes(4 * d)
			b.ReportAllocs()
			for b.Loop() {
				part.op()
			}
		})
	}
}
