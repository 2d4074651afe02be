package sketchedsgd

import "github.com/gradproxy/gradproxy/codecs/internal/magnitude"

// Largest appends the indices of the m values of largest magnitude to dst, ascending; of equal ones the first. Zeros
// are left out, so there may be fewer. NaN counts as larger than all numbers. It goes through x at most four times.
func Largest(dst []uint64, x []float32, m int) []uint64 {
	if m = min(m, len(x)); m <= 0 {
		return dst
	}
	smallest, larger := magnitude.Kth(x, m)
	ties := m - larger
	if smallest == 0 {
		ties = 0
	}
	for i, v := range x {
		switch b := magnitude.Of(v); {
		case b > smallest:
			dst = append(dst, uint64(i))
		case b == smallest && ties > 0:
			dst = append(dst, uint64(i))
			ties--
		}
	}
	return dst
}
