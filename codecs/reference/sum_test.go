package reference_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

// lossy lists codecs with the bounds of their errors: a part of the largest difference.
var lossy = []struct {
	text  string
	bound float64
	units float64 // in the last place of the largest, to which a value that stays is reached; 0: all of it
}{
	{"3lc", 1. / 2, 0},
	{"3lc(s=1.75)", 1.75 / 2, 2}, // 1.75 times k units is k too many, after rounding, for k = 1, and 2 if that is even
	{"int8", 1. / 254 * (1 + 0x1p-14), 0},
	{"int4", 1. / 14 * (1 + 0x1p-14), 0},
}

// precision is half a unit in the last place of a type's value over that value, at most.
var precision = map[tensor.DType]float64{tensor.Float64: 0x1p-53, tensor.Float32: 0x1p-24, tensor.Float16: 0x1p-11, tensor.BFloat16: 0x1p-8}

// tiny is half the smallest value of a type that is not zero.
var tiny = map[tensor.DType]float64{tensor.Float64: 0, tensor.Float32: 0x1p-150, tensor.Float16: 0x1p-25, tensor.BFloat16: 0x1p-134}

// A walk is a tensor with elements of magnitudes from 2^-8 to 2^8 that change a little at each step.
type walk struct {
	rand  *rand.Rand
	dtype tensor.DType
	v     []float64
}

func newWalk(t *testing.T, d tensor.DType, n int) *walk {
	const seed = 5
	t.Logf("seed %d", seed)
	w := &walk{rand.New(rand.NewPCG(seed, seed)), d, make([]float64, n)}
	for i := range w.v {
		w.v[i] = w.rand.NormFloat64() * math.Ldexp(1, w.rand.IntN(17)-8)
	}
	return w
}

func (w *walk) step() []byte {
	for i := range w.v {
		w.v[i] += w.rand.NormFloat64() * 0x1p-9
	}
	return w.block()
}

func (w *walk) block() []byte { return block(w.v, w.dtype) }

func block(v []float64, d tensor.DType) []byte {
	b := make([]byte, len(v)*d.Size())
	for i, x := range v {
		if d == tensor.Float64 {
			putFloat64(b, i, x)
		} else {
			tensor.FromFloat32(b[i*d.Size():(i+1)*d.Size()], []float32{float32(x)}, d)
		}
	}
	return b
}

func values(b []byte, d tensor.DType) []float64 {
	v := make([]float64, len(b)/d.Size())
	for i := range v {
		if d == tensor.Float64 {
			v[i] = float64At(b, i)
			continue
		}
		var x [1]float32
		tensor.ToFloat32(x[:], b[i*d.Size():(i+1)*d.Size()], d)
		v[i] = float64(x[0])
	}
	return v
}

func largest(a, b []float64) (found float64) {
	for i := range a {
		found = max(found, math.Abs(a[i]-b[i]))
	}
	return found
}

// At every step both ends hold the same bits (send checks that), which are within the codec's bound for one step of the
// value: over hundreds of steps, nothing adds up.
func TestErrorIsThatOfOneStep(t *testing.T) {
	require.OneGoroutine(t)
	for _, c := range lossy {
		for _, d := range floats {
			t.Run(c.text+"/"+d.String(), func(t *testing.T) {
				const n = 600
				e := sameDirection(t, mustNew(t, c.text), d, n)
				w := newWalk(t, d, n)
				e.send(t, w.block())
				for step := range 300 {
					x := w.step()
					v, held := values(x, d), values(e.near.AppendTo(nil), d)
					limit := largest(v, held)
					delivered, encoded := e.send(t, x)
					if encoded == nil {
						t.Fatalf("step %d is unsuited", step)
					}
					for i, y := range values(delivered, d) {
						// The difference and the sum are rounded to float32, the sum then to the type.
						allowed := c.bound*limit + 0x1p-23*limit + (0x1p-24+precision[d])*math.Abs(y) + tiny[d]
						if d == tensor.Float64 {
							allowed -= 0x1p-24 * math.Abs(y)
						}
						if lost := math.Abs(v[i] - y); !(lost <= allowed*(1+1e-9)) {
							t.Fatalf("step %d, element %d: %v is delivered as %v; %v was held, and %v may be lost", step, i, v[i], y, held[i], allowed)
						}
					}
				}
			})
		}
	}
}

// The test above can fail: without the loop, differences of successive values add up to something else.
func TestOpenLoopDrifts(t *testing.T) {
	const n = 600
	c := mustNew(t, "3lc(s=1.75)")
	w := newWalk(t, tensor.Float32, n)
	enc, err1 := c.NewEncoder(tensor.Float32, n)
	dec, err2 := c.NewDecoder(tensor.Float32, n)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	last := values(w.block(), tensor.Float32)
	held := append([]float64(nil), last...)
	largestStep := 0.0
	for range 300 {
		x := values(w.step(), tensor.Float32)
		d := make([]float64, n)
		for i := range d {
			d[i] = x[i] - last[i]
			largestStep = max(largestStep, math.Abs(d[i]))
		}
		b, err := enc.Append(nil, block(d, tensor.Float32))
		if err != nil {
			t.Fatal(err)
		}
		y := make([]byte, 4*n)
		if err := dec.Decode(y, b); err != nil {
			t.Fatal(err)
		}
		for i, v := range values(y, tensor.Float32) {
			held[i] += v
		}
		last = x
	}
	if drift := largest(held, last); drift < 2*largestStep {
		t.Errorf("the open loop is only %v off, of steps up to %v", drift, largestStep)
	}
}

// When the value stays, the copies come to it.
func TestConvergence(t *testing.T) {
	for _, c := range lossy {
		for _, d := range floats {
			t.Run(c.text+"/"+d.String(), func(t *testing.T) {
				const n = 600
				e := sameDirection(t, mustNew(t, c.text), d, n)
				w := newWalk(t, d, n)
				e.send(t, w.block())
				x := w.step()
				v := values(x, d)
				allowed := c.units * 2 * precision[d] * largest(v, make([]float64, n))
				off := math.Inf(1)
				for step := range 2000 {
					if delivered, encoded := e.send(t, x); encoded == nil {
						t.Fatalf("step %d is unsuited", step)
					} else if off = largest(v, values(delivered, d)); off <= allowed {
						t.Logf("%d steps", step+1)
						return
					}
				}
				t.Errorf("after 2,000 steps it is still %v off, %v is allowed", off, allowed)
			})
		}
	}
}

// NaN and infinities travel as they are and are held; the step after them is exact too, and then the loop goes on.
func TestSpecialValuesAreUnsuited(t *testing.T) {
	for _, special := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		const n = 100
		e := sameDirection(t, mustNew(t, "int8"), tensor.Float32, n)
		w := newWalk(t, tensor.Float32, n)
		for step, coded := range []bool{false, true, false, false, false, true} {
			v := values(w.step(), tensor.Float32)
			if step == 2 || step == 3 {
				v[7] = special
			}
			if _, encoded := e.send(t, block(v, tensor.Float32)); (encoded != nil) != coded {
				t.Errorf("%v: step %d: coded is %v, want %v", special, step, encoded != nil, coded)
			}
		}
	}
}

// No finite value becomes an infinity, in any type.
func TestLargestValuesStayFinite(t *testing.T) {
	for d, maximum := range map[tensor.DType]float64{tensor.Float32: math.MaxFloat32, tensor.Float16: 65504, tensor.BFloat16: 0x1.fep127} {
		for _, sign := range []float64{1, -1} {
			const n = 6
			e := sameDirection(t, mustNew(t, "3lc(s=1.9)"), d, n)
			e.send(t, block([]float64{sign * maximum * 0.75, 0, 1, 2, 3, 4}, d))
			// The difference is maximum/4, and 1.9 times that is delivered.
			delivered, encoded := e.send(t, block([]float64{sign * maximum, 0, 1, 2, 3, 4}, d))
			if got := values(delivered, d)[0]; encoded == nil || got != sign*maximum {
				t.Errorf("%v: %v is delivered as %v", d, sign*maximum, got)
			}
		}
	}
}

// Float64 elements are followed beyond float32's precision, and their encoding is as short.
func TestFloat64(t *testing.T) {
	e := sameDirection(t, mustNew(t, "int8"), tensor.Float64, 1)
	e.send(t, block([]float64{1}, tensor.Float64))
	want := 1 + 0x1p-45
	delivered, encoded := e.send(t, block([]float64{want}, tensor.Float64))
	if got := values(delivered, tensor.Float64)[0]; math.Abs(got-want) > 0x1p-52 || len(encoded) > 5+1+1+8 {
		t.Errorf("%v is delivered as %v in %d bytes", want, got, len(encoded))
	}
}

// The next block may be coded by another codec: the Copies do not know which made them.
func TestCodecChanges(t *testing.T) {
	const n = 600
	near, far := reference.NewCopy(4*n, 0), reference.NewCopy(4*n, 0)
	w := newWalk(t, tensor.Float32, n)
	for i, text := range []string{"lossless", "3lc", "int4", "lossless", "int8"} {
		e := between(t, mustNew(t, text), tensor.Float32, near, far, near, far)
		for range 3 {
			if _, encoded := e.send(t, w.step()); encoded == nil && i > 0 {
				t.Errorf("%s is unsuited after another codec", text)
			}
		}
	}
}
