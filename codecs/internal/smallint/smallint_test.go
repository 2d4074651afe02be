package smallint

import (
	"bytes"
	"slices"
	"testing"
)

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		bits int
		q    []int8
		want []byte
	}{
		{2, []int8{1, 0, -1, 1, -1}, []byte{0b01_11_00_01, 0b11}},
		{4, []int8{7, -7, -1}, []byte{0x97, 0x0f}},
		{8, []int8{127, -127, 0}, []byte{0x7f, 0x81, 0}},
	} {
		if got := Append([]byte{0xee}, c.bits, c.q); !bytes.Equal(got[1:], c.want) || got[0] != 0xee {
			t.Errorf("%d bits: % x, want % x", c.bits, got[1:], c.want)
		}
	}
}

// FuzzBothWays: integers come back, and bytes are either refused or decode to integers with exactly these bytes.
func FuzzBothWays(f *testing.F) {
	f.Add([]byte{0x55, 0x97, 0x81}, byte(3))
	f.Add([]byte{0x80, 0x08, 0x02}, byte(12))
	f.Fuzz(func(t *testing.T, b []byte, short byte) {
		for _, bits := range []int{2, 4, 8} {
			n := max(8/bits*len(b)-int(short)%(8/bits), 0)
			src := b[:Len(bits, n)]
			q := make([]int8, n)
			ok := Read(q, bits, src)
			hasMinimum := slices.Contains(q, int8(-1-Max(bits)))
			again := Append(nil, bits, q)
			if ok != (!hasMinimum && bytes.Equal(again, src)) {
				t.Fatalf("% x is %d of %d bits, %v: %v, and they are % x", src, n, bits, q, ok, again)
			}
			back := make([]int8, n)
			if Read(back, bits, again) == hasMinimum || !slices.Equal(back, q) {
				t.Fatalf("%v of %d bits come back as %v", q, bits, back)
			}
		}
	})
}
