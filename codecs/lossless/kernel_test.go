package lossless

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// FuzzTwins compares each kernel with its twin in Go, at any alignment, and looks that it writes nothing beyond its
// planes.
func FuzzTwins(f *testing.F) {
	for n := range uint64(10) {
		f.Add(asmtest.Awkward(int(40*n), n, true), byte(7*n), byte(20*n))
	}
	f.Add(bytes.Repeat([]byte{100, 101, 114, 115, 99, 100, 100, 100}, 100), byte(3), byte(100))
	f.Fuzz(func(t *testing.T, b []byte, shift, base byte) {
		n := len(b) / 32 * 8 // of four bytes
		src := asmtest.Bytes(b[:4*n], int(shift%64))
		low, m, e := make([]byte, 2*n), make([]byte, n), make([]byte, n)
		splitFloat32Plain(low, m, e, src)
		m16, e16 := make([]byte, 2*n), make([]byte, 2*n)
		splitFloat16Plain(m16, e16, src)
		asmtest.Do(t, func(simd.Tier) {
			gotLow, checkLow := guarded(2*n, shift)
			gotM, checkM := guarded(n, shift/2)
			gotE, checkE := guarded(n, shift/3)
			splitFloat32(gotLow, gotM, gotE, src)
			if !bytes.Equal(gotLow, low) || !bytes.Equal(gotM, m) || !bytes.Equal(gotE, e) {
				t.Errorf("float32 % x: planes\n% x\n% x\n% x, in Go\n% x\n% x\n% x", src, gotLow, gotM, gotE, low, m, e)
			}
			back, checkBack := guarded(4*n, shift/4)
			if joinFloat32(back, gotLow, gotM, gotE); !bytes.Equal(back, src) {
				t.Errorf("float32 % x is joined to % x", src, back)
			}
			gotM16, checkM16 := guarded(2*n, shift/2)
			gotE16, checkE16 := guarded(2*n, shift/3)
			splitFloat16(gotM16, gotE16, src)
			if !bytes.Equal(gotM16, m16) || !bytes.Equal(gotE16, e16) {
				t.Errorf("float16 % x: planes\n% x\n% x, in Go\n% x\n% x", src, gotM16, gotE16, m16, e16)
			}
			clear(back)
			if joinFloat16(back, gotM16, gotE16); !bytes.Equal(back, src) {
				t.Errorf("float16 % x is joined to % x", src, back)
			}
			for _, check := range []func(*testing.T){checkLow, checkM, checkE, checkBack, checkM16, checkE16} {
				check(t)
			}
		})
		checkFourBits(t, src, min(base, maxBase))
	})
}

// checkFourBits packs and unpacks p as exponents.
func checkFourBits(t *testing.T, p []byte, base byte) {
	t.Helper()
	var want []byte
	var fits bool
	asmtest.Do(t, func(tier simd.Tier) {
		got, ok := appendFourBits(nil, p, base)
		if tier == simd.Plain {
			want, fits = got, ok
		}
		if ok != fits || !bytes.Equal(got, want) {
			t.Fatalf("% x in four bits from %d on is % x, %v; in Go % x, %v", p, base, got, ok, want, fits)
		}
		if !ok {
			return
		}
		r := reader{b: got}
		back, check := guarded(len(p), base)
		readFourBits(&r, back)
		if r.err != nil || len(r.b) > 0 || !bytes.Equal(back, p) {
			t.Fatalf("% x: in four bits % x, and read % x, %v", p, got, back, r.err)
		}
		check(t)
		if n := len(got) - 1; n >= 4+fourBitsLen(len(p)) { // one escape less
			short := append([]byte{}, got[:n]...)
			putUint24(short[1:], n-4-fourBitsLen(len(p)))
			r := reader{b: short}
			if readFourBits(&r, back); r.err == nil {
				t.Fatalf("% x: an escape is missing, and nothing is said", short)
			}
			check(t)
		}
	})
}

// guarded returns n bytes at another alignment for each shift, and a function that tells whether bytes beside them have
// been written.
func guarded(n int, shift byte) (b []byte, check func(t *testing.T)) {
	const guard = 0x5aa55aa55aa55aa5
	s := int(shift % 64)
	room := make([]byte, s+8+n+8)
	binary.LittleEndian.PutUint64(room[s:], guard)
	binary.LittleEndian.PutUint64(room[s+8+n:], guard)
	return room[s+8 : s+8+n : s+8+n], func(t *testing.T) {
		t.Helper()
		if binary.LittleEndian.Uint64(room[s:]) != guard || binary.LittleEndian.Uint64(room[s+8+n:]) != guard {
			t.Errorf("bytes beside %d are overwritten", n)
		}
	}
}
