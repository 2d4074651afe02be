package onebit

import (
	"errors"
	"math"
)

var errSigns = errors.New("there are signs beyond the last value")

// signsLen is the number of bytes that hold the signs of n values.
func signsLen(n int) int { return (n + 7) / 8 }

// split sets a bit of signs for each negative value of x and returns the means of the other values, and of minus the
// negative ones. If a value is not finite, one of the means is not.
func split(signs []byte, x []float32) (high, low float32) {
	// Eight sums each, so that none waits for another. Their order is fixed: every processor computes the same means.
	var highs, lows [8]float64
	negatives := 0
	for j := range signs {
		var b byte
		for k, v := range x[8*j : min(8*j+8, len(x))] {
			n := math.Float32bits(v) >> 31
			if v == 0 {
				n = 0 // -0 is not negative
			}
			b |= byte(n) << k
			negatives += int(n)
			all := math.Float64bits(float64(v))
			mask := -uint64(n)
			highs[k] += math.Float64frombits(all &^ mask)
			lows[k] += math.Float64frombits(all & mask)
		}
		signs[j] = b
	}
	return mean(add(highs), len(x)-negatives), mean(-add(lows), negatives)
}

func add(s [8]float64) float64 {
	return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
}

// mean of none is 0.
func mean(sum float64, n int) float32 {
	return float32(math.Abs(sum) / float64(max(n, 1)))
}

// join sets x to high, and -low where signs say negative.
func join(x []float32, signs []byte, high, low float32) {
	values := [2]float32{high, 0 - low} // never -0
	j := 0
	for ; 8*j+8 <= len(x); j++ {
		b, x := signs[j], x[8*j:][:8]
		x[0] = values[b&1]
		x[1] = values[b>>1&1]
		x[2] = values[b>>2&1]
		x[3] = values[b>>3&1]
		x[4] = values[b>>4&1]
		x[5] = values[b>>5&1]
		x[6] = values[b>>6&1]
		x[7] = values[b>>7]
	}
	for i := 8 * j; i < len(x); i++ {
		x[i] = values[signs[j]>>(i%8)&1]
	}
}
