package absmax

import (
	"encoding/binary"
	"math"
	"testing"
)

// plain says what Of and OfSum mean. e may be nil.
func plain(x, e []float32) float32 {
	var most float32
	for i, v := range x {
		if e != nil {
			v += e[i]
		}
		if a := float32(math.Abs(float64(v))); !(a <= most) { // true for NaN as well
			most = a
		}
		if most != most {
			break
		}
	}
	return most
}

func same(a, b float32) bool {
	return a == b || !finite(a) && !finite(b)
}

func finite(x float32) bool { return math.Abs(float64(x)) <= math.MaxFloat32 }

func FuzzAgainstPlain(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	for _, x := range []float32{1, -2, math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Inf(-1)), float32(math.NaN())} {
		b := make([]byte, 19*8)
		binary.LittleEndian.PutUint32(b[13*8:], math.Float32bits(x))
		f.Add(b)
		binary.LittleEndian.PutUint32(b[17*8+4:], math.Float32bits(x))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n := len(b) / 8
		x, e := make([]float32, n), make([]float32, n)
		for i := range n {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i:]))
			e[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i+4:]))
		}
		if got, want := Of(x), plain(x, nil); !same(got, want) {
			t.Errorf("Of(%v) = %v, want %v", x, got, want)
		}
		if got, want := OfSum(x, e), plain(x, e); !same(got, want) {
			t.Errorf("OfSum(%v, %v) = %v, want %v", x, e, got, want)
		}
	})
}

// Every place counts: the unrolled loop, what it leaves, one value, none.
func TestEveryPlace(t *testing.T) {
	for n := range 40 {
		for i := range n {
			x, e := make([]float32, n), make([]float32, n)
			x[i], e[i] = -3, -1
			if Of(x) != 3 || OfSum(x, e) != 4 {
				t.Fatalf("%d of %d: %v, %v", i, n, Of(x), OfSum(x, e))
			}
		}
		if Of(make([]float32, n)) != 0 {
			t.Fatalf("%d zeros", n)
		}
	}
}
