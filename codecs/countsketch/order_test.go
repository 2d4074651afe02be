package countsketch

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// taken lists the n coordinates as an order takes them, by its definition.
func (o order) taken(n int) (all []int) {
	for first := 0; first < n; first += o.runs * o.stride {
		end := min(n, first+o.runs*o.stride)
		for at := 0; at < o.stride; at += 16 {
			for run := first; run < end; run += o.stride {
				for i := run + at; i < min(run+at+16, run+o.stride, end); i++ {
					all = append(all, i)
				}
			}
		}
	}
	return all
}

// No order takes a coordinate before an earlier one of the same cell, for multipliers at random, of next to nothing,
// and of nearly a fraction, with which cells repeat soon.
func TestOrdersKeepCellsInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	some := 0
	for range 2000 {
		mul, columns, span := rng.Uint64(), 1+rng.IntN(1<<(1+rng.IntN(16))), 1+rng.IntN(1<<13)
		switch rng.IntN(4) {
		case 0:
			mul >>= rng.IntN(64)
		case 1:
			mul = ^uint64(0)/(1+rng.Uint64N(1000))*rng.Uint64N(1000) + mul>>(40+rng.IntN(24))
		}
		o := orderOf(mul, columns, span)
		if o == (order{}) {
			continue
		}
		some++
		add, h := rng.Uint64(), Hash{Config: Config{Rows: 1, Columns: columns}}
		h.mul[0], h.add[0] = mul, add
		last := make([]int, columns) // coordinate of each cell, and 1
		n := span - rng.IntN(1+span/2)
		all := o.taken(n)
		for _, i := range all {
			c := h.bucket(0, uint64(i))
			if last[c] > i {
				t.Fatalf("%d columns, %#x: %+v takes %d before %d, of the same cell", columns, mul, o, last[c]-1, i)
			}
			last[c] = i + 1
		}
		slices.Sort(all)
		if len(all) != n || all[0] != 0 || all[n-1] != n-1 || len(slices.Compact(all)) != n {
			t.Fatalf("%+v takes %d of %d coordinates", o, len(all), n)
		}
	}
	if some < 200 {
		t.Errorf("only %d have an order", some)
	}
}

// Nearly all rows of a table between the first and the second cache have an order.
func TestRowsHaveOrders(t *testing.T) {
	rows, have := 0, 0
	for seed := range uint64(40) {
		h := mustHash(t, Config{5, 32768, seed}, 1<<20)
		for _, o := range h.orders[:h.Rows] {
			if rows++; o.runs > 1 {
				have++
			}
		}
	}
	if have < rows*9/10 {
		t.Errorf("%d of %d rows", have, rows)
	}
}

// Tables of every size have the bits of coordinates that came one after another, in sums that rounding makes depend on
// it, wherever a vector's parts begin.
func TestInsertByOrder(t *testing.T) {
	const n = 150_000
	rng := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64()) * float32(uint64(1)<<rng.IntN(40))
	}
	for _, c := range []Config{{5, 32768, 1}, {5, 32768, 2}, {3, 65536, 3}, {15, 12345, 4}, {1, 1 << 18, 5}, {3, 8192, 6}, {3, 100_000, 7}} {
		h := mustHash(t, c, n)
		want := New(h)
		signs := make([]uint16, 1)
		for i, v := range x {
			h.signsOf(signs, i)
			for r := range c.Rows {
				insertPlain(want.row(r), []float32{v}, signs, r, h.mul[r]*uint64(i)+h.add[r], h.mul[r])
			}
		}
		asmtest.Do(t, func(simd.Tier) {
			got := New(h)
			from := 0
			for _, end := range []int{1, 40_000, 72_345, 72_360, n} {
				got.Insert(from, x[from:end])
				from = end
			}
			for i, v := range got.Cells() {
				if !asmtest.Same(v, want.Cells()[i]) {
					t.Fatalf("%+v: cell %d is %x, want %x", c, i, v, want.Cells()[i])
				}
			}
		})
	}
}
