package gloo

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// judge gives b to a sample in calls of step bytes.
func judge(b []byte, step int, search bool) verdict {
	var s sample
	s.begin(len(b), search)
	for rest := b; len(rest) > 0; {
		n := min(step, len(rest))
		s.feed(rest[:n])
		rest = rest[n:]
	}
	return s.verdict()
}

// floats returns n values of type d that f draws.
func floats(d tensor.DType, n int, f func() float64) []byte {
	if d == tensor.Float64 {
		var b []byte
		for range n {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f()))
		}
		return b
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(f())
	}
	b := make([]byte, n*d.Size())
	tensor.FromFloat32(b, v, d)
	return b
}

func TestVerdictsOfFloats(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	normal := func(scale float64) func() float64 { return func() float64 { return rnd.NormFloat64() * scale } }
	for name, f := range map[string]func() float64{
		"gradients":          normal(1e-3),
		"small gradients":    normal(1e-5),
		"weights":            normal(0.05),
		"activations, large": normal(30),
		"heavy tails":        func() float64 { return rnd.NormFloat64() * math.Exp(1.5*rnd.NormFloat64()) * 1e-2 },
		"half zeros": func() float64 {
			if rnd.IntN(2) == 0 {
				return 0
			}
			return rnd.NormFloat64() * 0.1
		},
		"one in fifty not zero": func() float64 {
			if rnd.IntN(50) != 0 {
				return 0
			}
			return rnd.NormFloat64() * 0.01
		},
	} {
		for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
			for _, n := range []int{4000, 65536, 200_000} {
				b := floats(d, n, f)
				got := judge(b, len(b), true)
				if got.dtype() != d && !(d == tensor.Float16 && (got == noFloat || got == noEvidence)) && !(n == 4000 && got == noEvidence) {
					t.Errorf("%s, %d of %v: verdict %v (%v)", name, n, d, got, got.dtype())
				}
			}
		}
	}
}

// Float32 that holds 16-bit values, as JAX sums BFloat16, is Float32. Values that lie in one binade, or have one
// absolute value, are never taken for values of another width: their mantissa passes for an exponent.
func TestVerdictsOfValuesInOneBinade(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16} {
		for _, scale := range []float64{1, 1. / 1024, 1. / 8} {
			for name, f := range map[string]func() float64{
				"in [1, 2)":    func() float64 { return 1 + rnd.Float64() },
				"in [1, 1.25)": func() float64 { return 1 + rnd.Float64()/4 },
				"in [1, 2.8)":  func() float64 { return 1 + 1.8*rnd.Float64() },
				"in [1, 1.25), and few below": func() float64 {
					if rnd.IntN(200) == 0 {
						return 0.5 + rnd.Float64()/2
					}
					return 1 + rnd.Float64()/4
				},
				"in [1, 2), and few below": func() float64 {
					if rnd.IntN(200) == 0 {
						return 0.5 + rnd.Float64()/2
					}
					return 1 + rnd.Float64()
				},
				"one": func() float64 { return 1 },
			} {
				b := floats(d, 32<<10, func() float64 {
					if rnd.IntN(2) == 0 {
						return -f() * scale
					}
					return f() * scale
				})
				if v := judge(b, len(b), false); v.dtype() != tensor.NoDType && v.dtype() != d {
					t.Errorf("%v %s, scaled by %v: taken for %v", d, name, scale, v.dtype())
				}
			}
		}
	}
}

func TestVerdictOfWidenedValues(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	brain := floats(tensor.BFloat16, 50_000, func() float64 { return rnd.NormFloat64() * 0.01 })
	wide := make([]byte, 2*len(brain))
	for i := 0; i < len(brain); i += 2 {
		wide[2*i+2], wide[2*i+3] = brain[i], brain[i+1]
	}
	if got := judge(wide, len(wide), true); got != isFloat32 {
		t.Errorf("verdict %v", got)
	}
}

// Bytes that are no tensor of floats get no verdict, whatever their length.
func TestVerdictsOfOtherBytes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	fill := func(f func(i int) byte) []byte {
		b := make([]byte, 1<<17)
		for i := range b {
			b[i] = f(i)
		}
		return b
	}
	words := func(size int, f func() uint64) []byte {
		b := make([]byte, 1<<17)
		for i := 0; i < len(b); i += size {
			var w [8]byte
			binary.LittleEndian.PutUint64(w[:], f())
			copy(b[i:], w[:size])
		}
		return b
	}
	phase := 0.0
	for name, b := range map[string][]byte{
		"zeros":           make([]byte, 1<<17),
		"random bytes":    fill(func(int) byte { return byte(rnd.Uint32()) }),
		"text":            fill(func(i int) byte { return "the quick brown fox jumps over the lazy dog "[i%44] }),
		"pixels":          fill(func(int) byte { return byte(max(0, min(255, 90+60*rnd.NormFloat64()))) }),
		"counts, int32":   words(4, func() uint64 { return uint64(rnd.IntN(1000)) }),
		"indices, int32":  words(4, func() uint64 { return uint64(rnd.IntN(1 << 24)) }),
		"signed, int32":   words(4, func() uint64 { return uint64(int64(rnd.NormFloat64() * 1e5)) }),
		"hashes, int64":   words(8, rnd.Uint64),
		"indices, int64":  words(8, func() uint64 { return uint64(rnd.IntN(1 << 20)) }),
		"small, int16":    words(2, func() uint64 { return uint64(int64(rnd.NormFloat64() * 100)) }),
		"audio, int16":    words(2, func() uint64 { phase += 0.05; return uint64(int64(9000*math.Sin(phase) + 500*rnd.NormFloat64())) }),
		"signed, int8":    words(1, func() uint64 { return uint64(int64(rnd.NormFloat64() * 40)) }),
		"flags, int32":    words(4, func() uint64 { return uint64(rnd.IntN(2)) }),
		"one float again": floats(tensor.Float32, 1<<15, func() float64 { return 0.1 }),
		"positive floats": floats(tensor.Float32, 1<<15, func() float64 { return math.Abs(rnd.NormFloat64()) }),
	} {
		if got := judge(b, len(b), true); got > noFloat {
			t.Errorf("%s: %v", name, got.dtype())
		}
	}
}

// A verdict does not depend on how the message is cut.
func TestSamplesAreTheSameHoweverCut(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 1))
	for _, n := range []int{100, 4096, 9999, 70_001} {
		for _, share := range []int{1, 400} {
			b := floats(tensor.Float32, n, func() float64 {
				if rnd.IntN(share) != 0 {
					return 0
				}
				return rnd.NormFloat64()
			})
			for _, search := range []bool{false, true} {
				var whole sample
				whole.begin(len(b), search)
				whole.feed(b)
				for _, step := range []int{1, 7, 8, 13, 511, 512, 4099} {
					var s sample
					s.begin(len(b), search)
					for rest := b; len(rest) > 0; {
						k := min(step, len(rest))
						s.feed(rest[:k])
						rest = rest[k:]
					}
					if s.evidence != whole.evidence {
						t.Fatalf("%d floats, search %v: other evidence in calls of %d bytes (%d words, %d)", n, search, step, s.words, whole.words)
					}
				}
			}
		}
	}
}

// The gradient of an embedding has rows here and there; the search finds them.
func TestSearchesWhereTheSampleIsZero(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 1))
	v := make([]byte, 300_000)
	for _, row := range []int{100_000, 130_000, 220_000} {
		copy(v[row:], floats(tensor.Float32, 128, func() float64 { return rnd.NormFloat64() * 1e-3 }))
	}
	if got := judge(v, len(v), true); got != isFloat32 {
		t.Errorf("verdict %v, want float32", got)
	}
}

func BenchmarkSample(b *testing.B) {
	rnd := rand.New(rand.NewPCG(3, 4))
	msg := floats(tensor.Float32, 1<<18, func() float64 { return rnd.NormFloat64() * 1e-3 })
	copied := make([]byte, len(msg))
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(int64(len(msg)))
		for b.Loop() {
			copy(copied, msg)
		}
	})
	for name, search := range map[string]bool{"confirm": false, "search": true} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(msg)))
			var s sample
			for b.Loop() {
				s.begin(len(msg), search)
				s.feed(msg)
				if s.verdict() != isFloat32 {
					b.Fatal("not float32")
				}
			}
		})
	}
}
