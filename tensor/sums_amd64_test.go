//go:build !purego

package tensor

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// FuzzSums compares the kernels with their twin on values of any bits, at any alignment.
func FuzzSums(f *testing.F) {
	for n := range 6 {
		b := make([]byte, 256*n)
		rand.NewChaCha8([32]byte{byte(n)}).Read(b)
		f.Add(b, byte(n))
	}
	f.Fuzz(func(t *testing.T, b []byte, shift byte) {
		n := len(b) / 8 &^ (sumLanes - 1)
		if n == 0 {
			return
		}
		v := make([]float32, int(shift%sumLanes)+2*n)[shift%sumLanes:]
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		x, y := v[:n], v[n:]
		var want sums
		want.plain(x, y)
		for _, k := range []struct {
			name string
			has  bool
			sums func(x, y *float32, n int, to *[5]float32)
		}{{"AVX2", hasAVX2, sumsAVX2}, {"AVX512", hasAVX512, sumsAVX512}} {
			if !k.has {
				continue
			}
			var got sums
			k.sums(&x[0], &y[0], n, (*[5]float32)(&got))
			for i := range got {
				if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) { // one NaN is like another
					t.Errorf("%s: sums of %d values are %v, in Go %v", k.name, n, got, want)
				}
			}
		}
	})
}
