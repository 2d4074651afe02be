package sketchedsgd

import (
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
)

// The m largest against sorting, ties, zeros and all.
func TestLargest(t *testing.T) {
	for name, x := range kinds(1500) {
		for i := range x {
			if i%5 == 0 {
				x[i] = 0
			}
			if i%7 == 0 {
				x[i] = -x[(i+700)%1500]
			}
		}
		order := make([]int, len(x))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return int(magnitude.Of(x[b])) - int(magnitude.Of(x[a])) })
		for _, m := range []int{0, 1, 2, 10, 700, 1200, 1499, 1500, 2000} {
			var want []uint64
			for _, i := range order[:min(m, len(order))] {
				if x[i] != 0 {
					want = append(want, uint64(i))
				}
			}
			slices.Sort(want)
			if got := Largest(nil, x, m); !slices.Equal(got, want) {
				t.Errorf("%s: the %d largest are %v, want %v", name, m, got, want)
			}
		}
	}
}
