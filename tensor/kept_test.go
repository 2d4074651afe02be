package tensor

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// A comparison with the kept bytes of a float32 value gives the same as one with the value itself, within a percent, at
// every scale and length.
func TestKeptSaysWhatTheLastValueSays(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for _, scale := range []float64{1e-37, 1e-30, 1e-22, 1e-18, 1e-10, 1, 1e10, 1e18, 1e25, 1e37} {
		for _, n := range []int{1, 3, 15, 16, 17, 511, 2047, 2048, 2049, 5000} {
			last := gauss(rnd, n, scale)
			b := encode(Float32, plus(0.5, gauss(rnd, n, scale), 1, last))
			want, _ := compare(Float32, b, encode(Float32, last))
			kept := make([]byte, KeptSize(Float32, len(b)))
			Keep(Float32, kept, encode(Float32, last))
			got, ok := compareKept(Float32, b, kept)
			for _, p := range []struct{ got, want, limit float64 }{
				{got.norm, want.norm, 1e-4 * want.norm},
				{got.last, want.last, 0.02 * want.last},
				{got.diff, want.diff, 0.02 * (want.norm + want.last)},
				{got.abs, want.abs, 1e-4 * want.abs},
				{got.lastAbs, want.lastAbs, 0.01 * want.lastAbs},
			} {
				if !ok || math.Abs(p.got-p.want) > p.limit {
					t.Errorf("scale %g, %d elements: %+v, want %+v", scale, n, got, want)
				}
			}
			next := make([]byte, len(kept))
			if Keep(Float32, next, b); !bytes.Equal(kept, next) {
				t.Errorf("%d elements: the value compared is not what the next is compared with", n)
			}
		}
	}
}

// Check keeps a value that cannot be compared, but not one of another length.
func TestKeeps(t *testing.T) {
	for _, d := range []DType{Float32, Float64, Float16, BFloat16, Int32} {
		b := encode(BFloat16, []float64{1, 2, -3, 4})
		if d.Float() {
			b = encode(d, []float64{1, 2, -3, 4})
		}
		kept := make([]byte, KeptSize(d, len(b)))
		trust := Trust{earned: true}
		if trust.Judge(d, b, kept, nil) == Fits || !trust.earned {
			t.Errorf("%v: a value passes, or costs trust, after zeros", d)
		}
		if want := make([]byte, len(kept)); d == Float32 {
			for i := range len(b) / 4 {
				copy(want[2*i:], b[4*i+2:4*i+4])
			}
			if !bytes.Equal(kept, want) {
				t.Errorf("%v: % x keeps % x, want % x", d, b, kept, want)
			}
		} else if !bytes.Equal(kept, b) {
			t.Errorf("%v: % x keeps % x", d, b, kept)
		}
		before := bytes.Clone(kept)
		if trust.Judge(d, append(b, b...), kept, nil) == Fits || !trust.earned || !bytes.Equal(kept, before) {
			t.Errorf("%v: a value of another length passes, costs trust, or is kept", d)
		}
	}
	last, block := encode(Float32, []float64{1, 2}), encode(Float32, []float64{2, -1})
	for _, bits := range []uint32{0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff} {
		binary.LittleEndian.PutUint32(last[4:], bits)
		kept := make([]byte, 4)
		Keep(Float32, kept, last)
		trust := Trust{earned: true}
		if trust.Judge(Float32, block, kept, nil) == Fits || !trust.earned {
			t.Errorf("a value passes, or costs trust, after %#x", bits)
		}
		if trust.Judge(Float32, encode(Float32, []float64{1, 2}), kept, nil) != Fits {
			t.Errorf("after %#x and one more value there is nothing to compare with", bits)
		}
	}
}

func BenchmarkTrustCheck(b *testing.B) {
	rnd := rand.New(rand.NewPCG(5, 6))
	const block, blocks = 256 << 10, 256 // more last values than a cache holds
	values := [2][]byte{encode(Float32, gauss(rnd, block/4, 1)), encode(Float32, gauss(rnd, block/4, 1))}
	kept := make([]byte, blocks*KeptSize(Float32, block))
	trusts := make([]Trust, blocks)
	n := 0
	b.SetBytes(block)
	for b.Loop() {
		i := n % blocks
		trusts[i].Judge(Float32, values[n/blocks%2], kept[i*KeptSize(Float32, block):][:KeptSize(Float32, block)], nil)
		n++
	}
}
