package tensor

import "math"

// sums holds the sums of x*x, y*y, x*y, |x| and |y|, in this order.
type sums [5]float32

const (
	ofX = iota
	ofY
	ofProduct
	ofMagnitude
	ofLastMagnitude
)

// sumLanes is the number of partial sums of each kind: value i goes to partial sum i%sumLanes, and the partial sums are
// added at the end. With fewer of them each addition would wait for the one before.
const sumLanes = 16

// rest adds the last values, fewer than sumLanes.
func (s *sums) rest(x, y []float32) {
	for i, a := range x {
		b := y[i]
		s[ofX] += float32(a * a)
		s[ofY] += float32(b * b)
		s[ofProduct] += float32(a * b)
		s[ofMagnitude] += abs(a)
		s[ofLastMagnitude] += abs(b)
	}
}

// plain is the twin in Go of the kernels: it sets s to the sums of x and y. len(x) must be a multiple of sumLanes.
func (s *sums) plain(x, y []float32) {
	y = y[:len(x)]
	var lanes [sumLanes]sums
	for lane := range lanes {
		var norm, last, dot, magnitude, lastMagnitude float32 // an array would lie in memory, not in registers
		for i := lane; i < len(x); i += sumLanes {
			a, b := x[i], y[i]
			norm += float32(a * a)
			last += float32(b * b)
			dot += float32(a * b)
			magnitude += abs(a)
			lastMagnitude += abs(b)
		}
		lanes[lane] = sums{norm, last, dot, magnitude, lastMagnitude}
	}
	for half := sumLanes / 2; half > 0; half /= 2 {
		for lane := range half {
			for i, v := range lanes[lane+half] {
				lanes[lane][i] += v
			}
		}
	}
	*s = lanes[0]
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
