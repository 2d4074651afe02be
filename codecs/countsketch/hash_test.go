package countsketch

import (
	"math"
	"testing"
)

// Hashing block by block gives the values that the definitions give for one coordinate.
func TestBlocksAgainstDefinition(t *testing.T) {
	const n = 200_000 // beyond the first 65,536, twice
	h := mustHash(t, Config{MaxRows, 1000, 3}, n)
	s := New(h)
	for from := 65536 - 3000; from < n; {
		signs := s.next(from, n-from, 1<<12)
		for k, bits := range signs {
			i := uint64(from + k)
			for r := range h.Rows {
				if want := h.negative(r, i); uint32(bits)>>r&1 != want {
					t.Fatalf("row %d: coordinate %d is negative: %d, want %d", r, i, bits>>r&1, want)
				}
			}
		}
		from += len(signs)
	}
	for _, from := range []int{0, 5, 65530, 70_000, n - 10} {
		x := []float32{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
		a, b := New(h), New(h)
		a.Insert(from, x)
		for k, v := range x {
			i := uint64(from + k)
			for r := range h.Rows {
				if h.negative(r, i) == 1 {
					v = -v
				}
				b.row(r)[h.bucket(r, i)] += v
				v = x[k]
			}
		}
		sameCells(t, a, b)
	}
}

// How many coordinates have hashes does not change them.
func TestHashesDoNotDependOnLength(t *testing.T) {
	c := Config{15, 77, 9}
	long := mustHash(t, c, 1<<20)
	for _, n := range []int{1, 2, 5, 65535, 65536, 65537, 150_000} {
		short := mustHash(t, c, n)
		for i := max(0, n-2000); i < n; i++ {
			for r := range c.Rows {
				if short.negative(r, uint64(i)) != long.negative(r, uint64(i)) || short.bucket(r, uint64(i)) != long.bucket(r, uint64(i)) {
					t.Fatalf("row %d: coordinate %d of %d has other hashes than of %d", r, i, n, 1<<20)
				}
			}
		}
	}
}

// Any four coordinates' table entries are linearly independent over GF(2), so that over random tables their signs are
// mutually independent: no one, two, three or four of them cancel out. Coordinates are four by four, each upper half
// with each lower.
func TestSignsAreFourWiseIndependent(t *testing.T) {
	const side = 4
	var incidence []uint64 // a bit for each entry of each table
	for high := range uint64(side) {
		for low := range uint64(side) {
			e := entries(high<<16 | low)
			incidence = append(incidence, 1<<e[0]|1<<(8+e[1])|1<<(16+e[2]))
		}
	}
	for a := range incidence {
		for b := range a {
			for c := range b {
				if incidence[a]^incidence[b]^incidence[c] == 0 || incidence[a] == incidence[b] {
					t.Fatalf("signs of %d, %d and %d depend on each other", a, b, c)
				}
				for d := range c {
					if incidence[a]^incidence[b]^incidence[c]^incidence[d] == 0 {
						t.Fatalf("signs of %d, %d, %d and %d depend on each other", a, b, c, d)
					}
				}
			}
		}
	}
}

// The same of the signs themselves: over rows and seeds, the product of any four has mean 0. (A rectangle's would
// always be 1 without the third table.)
func TestProductsOfFourSigns(t *testing.T) {
	const seeds = 200
	var keys []uint64
	for high := range uint64(3) {
		for low := range uint64(4) {
			keys = append(keys, high<<16|low<<14|77)
		}
	}
	n := len(keys)
	odd := make([]int, n*n*n*n) // products that are -1
	for seed := range uint64(seeds) {
		h := mustHash(t, Config{MaxRows, 2, seed}, 3<<16)
		for r := range h.Rows {
			var s [16]uint32
			for i, k := range keys {
				s[i] = h.negative(r, k)
			}
			for a := range keys {
				for b := range a {
					for c := range b {
						for d := range c {
							odd[((a*n+b)*n+c)*n+d] += int(s[a] ^ s[b] ^ s[c] ^ s[d])
						}
					}
				}
			}
		}
	}
	const draws = seeds * MaxRows
	for a := range keys {
		for b := range a {
			for c := range b {
				for d := range c {
					if k := odd[((a*n+b)*n+c)*n+d]; math.Abs(float64(k)-draws/2) > 5*math.Sqrt(draws)/2 {
						t.Errorf("signs of %d, %d, %d, %d: %d of %d products are negative", keys[a], keys[b], keys[c], keys[d], k, draws)
					}
				}
			}
		}
	}
}

// Over seeds, two coordinates share a column as often as random ones, at any distance.
func TestBucketsArePairwiseIndependent(t *testing.T) {
	const columns, seeds = 50, 4000
	pairs := [][2]uint64{{0, 1}, {5, 6}, {0, 50}, {0, 1 << 16}, {1, 1 + 1<<31}, {3, math.MaxUint32}, {1 << 20, 3 << 20}}
	together := make([]int, len(pairs))
	var columnsOf [columns]int
	for seed := range uint64(seeds) {
		h := mustHash(t, Config{15, columns, seed}, 0)
		for r := range h.Rows {
			for p, k := range pairs {
				if h.bucket(r, k[0]) == h.bucket(r, k[1]) {
					together[p]++
				}
			}
			columnsOf[h.bucket(r, 12345)]++
		}
	}
	const draws = seeds * 15
	within := func(k int) bool {
		const p = 1.0 / columns
		return math.Abs(float64(k)-draws*p) < 5*math.Sqrt(draws*p*(1-p))
	}
	for p, k := range together {
		if !within(k) {
			t.Errorf("%v share a column in %d of %d rows", pairs[p], k, draws)
		}
	}
	for j, k := range columnsOf {
		if !within(k) {
			t.Errorf("column %d is one coordinate's in %d of %d rows", j, k, draws)
		}
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []Config{{0, 1, 0}, {2, 1, 0}, {17, 1, 0}, {-1, 1, 0}, {1, 0, 0}, {1, MaxColumns + 1, 0}} {
		if _, err := NewHash(c, 1); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if _, err := NewHash(Config{1, 1, 0}, -1); err == nil {
		t.Error("-1 coordinates are taken")
	}
	s := New(mustHash(t, Config{1, 1, 0}, 10))
	for _, c := range [][2]int{{-1, 1}, {0, 11}, {10, 1}, {11, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d coordinates from %d on of 10 do not panic", c[1], c[0])
				}
			}()
			s.Insert(c[0], make([]float32, c[1]))
		}()
	}
	s.Insert(10, nil)
}

// bucket returns the column of coordinate i in row r.
func (h *Hash) bucket(r int, i uint64) int {
	return int((h.mul[r]*i + h.add[r]) >> 32 * uint64(h.Columns) >> 32)
}

// negative returns 1 if the sign of coordinate i in row r is -1, else 0.
func (h *Hash) negative(r int, i uint64) uint32 {
	e := entries(i)
	return uint32(h.signs[0][e[0]]^h.signs[1][e[1]]^h.signs[2][e[2]]) >> r & 1
}

// entries returns which entry of each table makes the signs of coordinate i.
func entries(i uint64) [3]uint64 {
	high, low := i>>16, i&0xffff
	return [3]uint64{high, low, high + low}
}
