//go:build !purego

package tensor

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/tensor/simd"
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
		}{{"AVX2", simd.Best() >= simd.AVX2, sumsAVX2}, {"AVX512", simd.Best() >= simd.AVX512, sumsAVX512}} {
			if !k.has {
				continue
			}
			var got sums
			k.sums(&x[0], &y[0], n, (*[5]float32)(&got))
			sameSums(t, k.name, n, got, want)
		}
	})
}

// FuzzCutSums does the same with the kernels for kept values, and with the kernels that keep them.
func FuzzCutSums(f *testing.F) {
	for n := range 6 {
		b := make([]byte, 384*n)
		rand.NewChaCha8([32]byte{byte(n)}).Read(b)
		f.Add(b, byte(n))
	}
	f.Fuzz(func(t *testing.T, b []byte, shift byte) {
		n := min(len(b)/6, keptPiece) &^ (sumLanes - 1)
		if n == 0 {
			return
		}
		x := make([]float32, int(shift%sumLanes)+n)[shift%sumLanes:]
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		y := append(make([]byte, shift), b[4*n:6*n]...)[shift:]
		var want sums
		want.plainCut(x, y)
		kept := make([]byte, 2*n)
		plainCut(kept, x)
		for _, k := range []struct {
			name string
			has  bool
			sums func(x *float32, y *byte, n int, to *[5]float32)
			cut  func(dst *byte, src *float32, n int)
		}{{"AVX2", simd.Best() >= simd.AVX2, sumsCutAVX2, cutAVX2}, {"AVX512", simd.Best() >= simd.AVX512, sumsCutAVX512, cutAVX512}} {
			if !k.has {
				continue
			}
			var got sums
			k.sums(&x[0], &y[0], n, (*[5]float32)(&got))
			sameSums(t, k.name, n, got, want)
			room := make([]byte, int(shift)+2*n+1)
			k.cut(&room[shift], &x[0], n)
			if !bytes.Equal(room[shift:][:2*n], kept) || room[int(shift)+2*n] != 0 {
				t.Errorf("%s: % x keeps % x, in Go % x", k.name, x, room[shift:], kept)
			}
		}
	})
}

func sameSums(t *testing.T, kernel string, n int, got, want sums) {
	t.Helper()
	for i := range got {
		if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) { // one NaN is like another
			t.Errorf("%s: sums of %d values are %v, in Go %v", kernel, n, got, want)
		}
	}
}
