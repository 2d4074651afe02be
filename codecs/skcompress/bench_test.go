package skcompress

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/tensor"
)

// BenchmarkGradients reports ratios and errors on four recorded vectors. Section 7.7 has 21.7x on gradients of
// ResNet-18, with q = 16.
func BenchmarkGradients(b *testing.B) {
	for _, g := range gradients.All() {
		x := make([]float32, g.Cols)
		tensor.ToFloat32(x, g.Row(0), g.DType)
		for _, c := range []Config{{}, {Mode: Sparse}, {Mode: Dense}, {Mode: Joint}} {
			m, err := newMethod(c)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(g.Name+"/"+m.String(), func(b *testing.B) {
				e, d, y := encoder{m, len(x)}, decoder{m, len(x)}, make([]float32, len(x))
				var encoded []byte
				b.SetBytes(int64(4 * len(x)))
				for b.Loop() {
					if encoded, err = e.Append(encoded[:0], x); err != nil {
						b.Fatal(err)
					}
				}
				if err := d.Decode(y, encoded); err != nil {
					b.Fatal(err)
				}
				var xx, yy, xy, ee float64
				for i := range x {
					v, w := float64(x[i]), float64(y[i])
					xx, yy, xy, ee = xx+v*v, yy+w*w, xy+v*w, ee+(v-w)*(v-w)
				}
				b.ReportMetric(4*float64(len(x))/float64(len(encoded)), "ratio")
				b.ReportMetric(ee/xx, "NMSE")
				b.ReportMetric(xy/math.Sqrt(xx*yy), "cosine")
			})
		}
	}
}

func BenchmarkQuantiles(b *testing.B) {
	x := codectest.Normal(1, 1<<16)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		s := NewQuantiles(defaultM)
		for _, v := range x {
			s.Add(v)
		}
		s.Splits(nil, 2)
	}
}

func BenchmarkMinMaxSketch(b *testing.B) {
	const n = 1 << 20
	s := newMinMaxSketch(defaultRows, n/5, 0)
	insert := func() {
		for k := range uint64(n) {
			s.Insert(k, uint16(k&255))
		}
	}
	insert()
	b.Run("insert", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			insert()
		}
	})
	b.Run("query", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			for k := range uint64(n) {
				if s.Query(k) == Empty {
					b.Fatal("a key is lost")
				}
			}
		}
	})
}
