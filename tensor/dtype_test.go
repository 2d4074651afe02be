package tensor

import (
	"math"
	"math/big"
	"testing"
)

// Every 16-bit value survives the way to float32 and back, bit for bit (a NaN stays a NaN).
func TestHalvesSurvive(t *testing.T) {
	for _, d := range []DType{Float16, BFloat16} {
		for i := range 1 << 16 {
			src := []byte{byte(i), byte(i >> 8)}
			var f [1]float32
			ToFloat32(f[:], src, d)
			var back [2]byte
			FromFloat32(back[:], f[:], d)
			if f[0] != f[0] {
				var g [1]float32
				if ToFloat32(g[:], back[:], d); g[0] == g[0] {
					t.Fatalf("%v %04x: NaN became %v", d, i, g[0])
				}
			} else if [2]byte(src) != back {
				t.Fatalf("%v %04x came back as %x", d, i, back)
			}
		}
	}
}

// Rounding to 16 bits takes the nearest value, ties to even, for floats around every representable one.
func TestRoundsToNearestEven(t *testing.T) {
	for _, d := range []DType{Float16, BFloat16} {
		limit := map[DType]uint16{Float16: 0x7bff, BFloat16: 0x7f7f}[d]
		for h := uint16(0); h < limit; h++ {
			lo, hi := widen(h, d), widen(h+1, d)
			mid := float32((float64(lo) + float64(hi)) / 2)
			for _, x := range []float32{math.Nextafter32(mid, lo), mid, math.Nextafter32(mid, hi)} {
				want := h
				switch c := new(big.Float).Sub(big.NewFloat(float64(x)), big.NewFloat(float64(lo))).Cmp(new(big.Float).Sub(big.NewFloat(float64(hi)), big.NewFloat(float64(x)))); {
				case c > 0, c == 0 && h&1 == 1:
					want = h + 1
				}
				var b [2]byte
				FromFloat32(b[:], []float32{x}, d)
				if got := uint16(b[0]) | uint16(b[1])<<8; got != want {
					t.Fatalf("%v: %v rounds to %04x, want %04x", d, x, got, want)
				}
			}
		}
	}
}

func widen(h uint16, d DType) float32 {
	var f [1]float32
	ToFloat32(f[:], []byte{byte(h), byte(h >> 8)}, d)
	return f[0]
}

func TestWideTypesRoundTrip(t *testing.T) {
	values := []float32{0, float32(math.Copysign(0, -1)), 1, -1.5, math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Inf(1))}
	for _, d := range []DType{Float32, Float64} {
		b, got := make([]byte, len(values)*d.Size()), make([]float32, len(values))
		FromFloat32(b, values, d)
		ToFloat32(got, b, d)
		for i := range values {
			if math.Float32bits(got[i]) != math.Float32bits(values[i]) {
				t.Errorf("%v: %v came back as %v", d, values[i], got[i])
			}
		}
	}
}

func TestNames(t *testing.T) {
	for _, d := range DTypes() {
		if got, ok := ParseDType(d.String()); !ok || got != d {
			t.Errorf("ParseDType(%q) = %v, %v", d.String(), got, ok)
		}
	}
	for _, r := range Roles() {
		if got, ok := ParseRole(r.String()); !ok || got != r {
			t.Errorf("ParseRole(%q) = %v, %v", r.String(), got, ok)
		}
	}
	if _, ok := ParseRole("weights"); ok {
		t.Error("a role that does not exist was parsed")
	}
}
