package countsketch

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// FuzzInsert compares each kernel with its twin in Go on values of any bits, at any alignment, in rows so short that
// coordinates next to each other share cells as well.
func FuzzInsert(f *testing.F) {
	for n := range uint64(8) {
		f.Add(asmtest.Awkward(int(23*n), n, n%2 == 0), byte(9*n), uint16(1<<(2*n)), byte(n), n*0x9e3779b97f4a7c15, n*n*0xbf58476d1ce4e5b9)
	}
	f.Add(asmtest.Awkward(100, 1, true), byte(2), uint16(0), byte(14), ^uint64(0), ^uint64(0))
	for n := range uint64(8) { // of two to four runs
		f.Add(asmtest.Awkward(int(1300+23*n), n, true), byte(9*n), uint16(2000<<(n%4)), byte(n), n, ^uint64(0)/(257+16*n)*(100+n))
	}
	f.Fuzz(func(t *testing.T, b []byte, shift byte, columns uint16, r byte, key, mul uint64) {
		x := asmtest.Floats(b, int(shift%64))
		signs := make([]uint16, len(x))
		for i := range signs {
			signs[i] = uint16(key >> (i % 49))
		}
		const margin = 16
		c, row := 1+int(columns), int(r)%MaxRows
		want, o := make([]float32, c), orderOf(mul, c, len(x))
		insertPlain(want, x, signs, row, key, mul)
		asmtest.Do(t, func(simd.Tier) {
			room := make([]float32, c+2*margin)
			insert(room[margin:][:c], x, signs, row, key, mul, o)
			for i, v := range room {
				switch inside := i >= margin && i < margin+c; {
				case inside && !asmtest.Same(v, want[i-margin]):
					t.Fatalf("cell %d of %d is %x, in Go %x", i-margin, c, v, want[i-margin])
				case !inside && v != 0:
					t.Fatalf("cell %d of %d is written", i-margin, c)
				}
			}
		})
	})
}

// FuzzQuery is FuzzInsert for estimates and their medians.
func FuzzQuery(f *testing.F) {
	for n := range uint64(9) {
		f.Add(asmtest.Awkward(int(17*n+1), n, true), uint16(50*n), byte(3*n), n*0x9e3779b97f4a7c15, n*n*0xbf58476d1ce4e5b9)
	}
	f.Fuzz(func(t *testing.T, b []byte, n uint16, rows byte, key, mul uint64) {
		cells := asmtest.Floats(b, int(rows/4))
		if n %= 300; len(cells) == 0 {
			return
		}
		signs := make([]uint16, n)
		for i := range signs {
			signs[i] = uint16(mul >> (i % 49))
		}
		var want [MaxRows][]int32
		many := 2*int(rows%8) + 1
		many = min(many, MaxRows)
		for r := range many {
			want[r] = make([]int32, n)
			queryPlain(want[r], cells, signs, r, key*uint64(r), mul+uint64(r))
		}
		medians := make([]float32, n)
		for i := range medians {
			var column []int32
			for r := range many {
				column = append(column, want[r][i])
			}
			slices.Sort(column)
			medians[i] = value(column[many/2])
		}
		asmtest.Do(t, func(simd.Tier) { queries(t, cells, signs, key, mul, &want, many, medians) })
	})
}

// queries fails unless the estimates are as wanted, and nothing beside them is written.
func queries(t *testing.T, cells []float32, signs []uint16, key, mul uint64, want *[MaxRows][]int32, rows int, of []float32) {
	const margin = 16
	n := len(signs)
	var got [MaxRows][]int32
	for r := range rows {
		room := make([]int32, n+2*margin)
		got[r] = room[margin:][:n]
		query(got[r], cells, signs, r, key*uint64(r), mul+uint64(r))
		if none := make([]int32, margin); !slices.Equal(got[r], want[r]) || !slices.Equal(room[:margin], none) || !slices.Equal(room[margin+n:], none) {
			t.Fatalf("row %d's estimates, and what is beside them, are %x, in Go %x", r, room, want[r])
		}
	}
	room := make([]float32, n+2*margin)
	medians(room[margin:][:n], &got, rows)
	for i, v := range room {
		switch inside := i >= margin && i < margin+n; {
		case inside && math.Float32bits(v) != math.Float32bits(of[i-margin]):
			t.Fatalf("the median of %d rows for coordinate %d of %d is %x, want %x", rows, i-margin, n, v, of[i-margin])
		case !inside && v != 0:
			t.Fatalf("median %d of %d is written", i-margin, n)
		}
	}
}

// FuzzSigns compares each kernel with its definition on tables of any bits, at any alignment.
func FuzzSigns(f *testing.F) {
	for n := range 8 {
		f.Add(asmtest.Awkward(49*n, uint64(n), true), byte(9*n), uint16(0x1234*n))
	}
	f.Fuzz(func(t *testing.T, b []byte, shift byte, s uint16) {
		const margin = 64
		half := len(b) / 4 * 2
		a, other := words(b[:half], int(shift%64)), words(b[half:2*half], int(shift/4))
		asmtest.Do(t, func(simd.Tier) {
			room := make([]uint16, len(a)+2*margin)
			dst := room[margin:][:len(a)]
			n := signsTiles(dst, a, other, s)
			for i, got := range room {
				want := uint16(0)
				if at := i - margin; at >= 0 && at < n {
					want = a[at] ^ other[at] ^ s
				}
				if got != want {
					t.Fatalf("of %d signs, %d of them the kernel's, number %d is %#x, want %#x", len(a), n, i-margin, got, want)
				}
			}
		})
	})
}

// words returns the bytes of b as numbers of 16 bits that begin shift after others.
func words(b []byte, shift int) []uint16 {
	room := make([]uint16, shift+len(b)/2)[shift:]
	for i := range room {
		room[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return room
}

// Kernels make the same signs as for each coordinate alone, wherever a run of them begins and however long it is.
func TestSignsOfRuns(t *testing.T) {
	const coordinates = 1<<17 + 1000
	h := mustHash(t, Config{5, 10, 3}, coordinates)
	for _, from := range []int{0, 1, 63, 1<<16 - 200, 1 << 16, 1<<16 + 77, coordinates - 200} {
		for n := range 200 {
			n = min(n, 1<<16-from&0xffff)
			asmtest.Do(t, func(simd.Tier) {
				signs := make([]uint16, n+1)
				h.signsOf(signs[:n], from)
				for i, s := range signs[:n] {
					for r := range h.Rows {
						if uint32(s)>>r&1 != h.negative(r, uint64(from+i)) {
							t.Fatalf("row %d's sign of coordinate %d, the %d-th of %d, is another", r, from+i, i, n)
						}
					}
				}
				if signs[n] != 0 {
					t.Fatalf("%d signs are more", n)
				}
			})
		}
	}
}
