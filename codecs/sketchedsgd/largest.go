package sketchedsgd

import "math"

// largest appends the indices of the m values of largest magnitude to dst, ascending; of equal ones the first. Zeros are left
// out, so there may be fewer. NaN counts as larger than all numbers. It goes through x at most four times.
func largest(dst []uint64, x []float32, m int) []uint64 {
	if m <= 0 {
		return dst
	}
	least, ties := threshold(x, m)
	for i, v := range x {
		switch b := magnitude(v); {
		case b > least:
			dst = append(dst, uint64(i))
		case b == least && ties > 0:
			dst = append(dst, uint64(i))
			ties--
		}
	}
	return dst
}

// magnitude returns |v| as an integer that orders magnitudes, of 31 bits.
func magnitude(v float32) uint32 { return math.Float32bits(v) &^ (1 << 31) }

// digits are the bits of a magnitude, from the highest on, as threshold looks at them.
var digits = [...]struct{ shift, bits uint }{{19, 12}, {9, 10}, {0, 9}}

// threshold returns the m-th largest magnitude, and how many of the values that have it are among the m largest. If there
// are no m values but zeros, it is 0, of which there are none.
func threshold(x []float32, m int) (least uint32, ties int) {
	var counts [1 << 12]int
	for _, d := range digits {
		clear(counts[:])
		above := d.shift + d.bits
		for _, v := range x {
			if b := magnitude(v); b>>above == least>>above {
				counts[b>>d.shift&(1<<d.bits-1)]++
			}
		}
		// The m-th largest is in the bucket in which the count from above reaches m.
		j := 1<<d.bits - 1
		for ; j > 0 && counts[j] < m; j-- {
			m -= counts[j]
		}
		least |= uint32(j) << d.shift
	}
	if least == 0 {
		return 0, 0
	}
	return least, m
}
