package threelc

import (
	"bytes"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// FuzzKernels compares each kernel with its twin in Go on values of any bits, at any alignment, for any threshold.
func FuzzKernels(f *testing.F) {
	for n := range uint64(12) {
		b := asmtest.Awkward(int(150*n), n, n%2 == 0)
		f.Add(b, byte(7*n), math.Float32bits(float32(n)/4), math.Float32bits(float32(n)/2))
	}
	f.Add(asmtest.Awkward(800, 1, true), byte(1), uint32(0), uint32(0))
	f.Add(asmtest.Awkward(800, 1, true), byte(1), uint32(0x7fffffff), uint32(0x7f800000))
	f.Fuzz(func(t *testing.T, b []byte, shift byte, h, d uint32) {
		half := len(b) / 8 * 4
		x, e := asmtest.Floats(b[:half], int(shift%64)), asmtest.Floats(b[half:2*half], int(shift/4))
		c, delivered := 0x7fffffff-h&0x7fffffff, math.Float32frombits(d&0x7fffffff)
		want, wantSum := make([]byte, quarticLen(len(x))), make([]byte, quarticLen(len(x)))
		wantLeft := append([]float32(nil), e...)
		quantizeFrom(0, want, x, c)
		quantizeSumFrom(0, wantSum, x, wantLeft, c, delivered)
		asmtest.Do(t, func(simd.Tier) {
			got := asmtest.Bytes(make([]byte, len(want)), int(shift/3%64))
			if quantize(got, x, c); !bytes.Equal(got, want) {
				t.Errorf("quantize(%x) for %x gives % x, in Go % x", x, c, got, want)
			}
			left := asmtest.Floats(b[half:2*half], int(shift/2%64))
			if quantizeSum(got, x, left, c, delivered); !bytes.Equal(got, wantSum) {
				t.Errorf("quantizeSum(%x, %x) for %x gives % x, in Go % x", x, e, c, got, wantSum)
			}
			for i := range left {
				if !asmtest.Same(left[i], wantLeft[i]) {
					t.Errorf("quantizeSum leaves %x of %x + %x, in Go %x", left[i], x[i], e[i], wantLeft[i])
				}
			}
		})
	})
}

// FuzzExpand compares the kernel that expands runs with its twin in Go and with the definition of runs.
func FuzzExpand(f *testing.F) {
	for n := range 24 {
		runs := make([]byte, 31*n)
		for i := range runs {
			if runs[i] = byte(i * i * (n + 1)); i%(n+1) > 1 {
				runs[i] = byte(firstRun + i%13)
			}
		}
		f.Add(runs, uint16(29*n), uint16(43*n))
	}
	f.Fuzz(func(t *testing.T, runs []byte, from, to uint16) {
		at, n := int(from%beyond), int(to%(piece+1))
		want := bytes.Repeat([]byte{fiveZeros}, at)
		wantUsed := 0
		for ; len(want) < n && wantUsed < len(runs); wantUsed++ {
			b := runs[wantUsed]
			if b >= firstRun {
				want = append(want, bytes.Repeat([]byte{fiveZeros}, int(runLength[b]))...)
			} else {
				want = append(want, b)
			}
		}
		asmtest.Do(t, func(simd.Tier) {
			var a room
			for i := range a[:at] {
				a[i] = fiveZeros
			}
			// With room for all runs, the kernel may use any of it; behind most, it may use only as much as it needs.
			if used, end := a.expand(runs, at, n, n); used != wantUsed || end != len(want) || !bytes.Equal(a[:end], want) {
				t.Errorf("% x from %d to %d: %d bytes give % x up to %d, want %d and % x", runs, at, n, used, a[:end], end, wantUsed, want)
			}
			b := a
			used, end := a.expand(runs, at, n, n+beyond)
			wantUsed, wantEnd := b.expandRest(runs[:used], 0, at, len(b)-maxRun)
			if used != wantUsed || end != wantEnd || end < n && used < len(runs) || end > n+beyond || !bytes.Equal(a[:end], b[:end]) {
				t.Errorf("% x from %d beyond %d: %d bytes give % x, in Go %d % x", runs, at, n, used, a[:end], wantUsed, b[:wantEnd])
			}
		})
	})
}

// Kernels write their own results and nothing beyond, and read nothing beyond their input.
func TestKernelsStayInside(t *testing.T) {
	const margin = 64
	for n := 1; n < 700; n++ {
		x := asmtest.GuardedFloats(t, asmtest.Floats(asmtest.Awkward(n, uint64(n), false), 0))
		p := quarticLen(n)
		packed, runs := asmtest.Guarded(t, make([]byte, p)), make([]byte, p)
		quantize(packed, x, threshold(1))
		runs = asmtest.Guarded(t, runs[:shorten(runs, packed)])
		asmtest.Do(t, func(simd.Tier) {
			room := bytes.Repeat([]byte{0xa5}, p+2*margin)
			quantize(room[margin:][:p], x, threshold(1))
			checkMargins(t, room, margin)
			shorten(room[margin:][:p], packed)
			checkMargins(t, room, margin)
			values := bytes.Repeat([]byte{0xa5}, 4*n+2*margin)
			y := asmtest.Floats(values, 0)
			if _, ok := unpack(y[margin/4:][:n], runs, 1); !ok {
				t.Fatalf("%d values are not unpacked", n)
			}
			for i, v := range y {
				if outside := i < margin/4 || i >= margin/4+n; outside && math.Float32bits(v) != 0xa5a5a5a5 {
					t.Fatalf("unpacking %d values overwrites value %d", n, i-margin/4)
				}
			}
		})
	}
}

func checkMargins(t *testing.T, room []byte, margin int) {
	t.Helper()
	for i, b := range room {
		if (i < margin || i >= len(room)-margin) && b != 0xa5 {
			t.Fatalf("byte %d of %d is overwritten", i-margin, len(room)-2*margin)
		}
	}
}
