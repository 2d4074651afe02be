package threelc

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/arith"
)

// scale returns M, equation (1): the largest magnitude of the block times s.
func scale(largest, s float32) (M float32) { return float32(largest * s) }

// threshold returns the number that classOf adds for a finite M of at least 0: 0x7fffffff - h, where h is the bits of
// the largest float32 that is at most M/2. For every float32 T of at most M in magnitude, round(T/M) of equation (2),
// ties to even, is 0 if |T| <= h, and else the sign of T: a T next above M/2 has a quotient of at least 1/2 + 2^-25,
// which float32 division does not round down to 1/2. And so it is for M = 0, where (2) is not defined.
func threshold(M float32) (c uint32) {
	h := math.Float32bits(M / 2)
	if b := math.Float32bits(M); b < 1<<24 {
		h = b >> 1 // M/2 is subnormal, in units of 2^-149, and may lie between two
	}
	return 0x7fffffff - h
}

// Classes of a value T, in two bits.
const (
	small         = 0 // |T| <= h and the sign bit is 0
	negative      = 1 // T < -h
	positive      = 2 // T > h
	smallNegative = 3 // |T| <= h and the sign bit is 1
)

// classOf returns the class of the value of bits b: in b+c, the sign bit is the other one if the magnitude is above h.
func classOf(b, c uint32) uint32 { return (b+c)>>31*2 + b>>31 }

// quantize sets dst to the quartic encoding of x for a threshold c: p = len(dst) = ceil(len(x)/5) bytes, of which
// byte j holds values j, p+j, 2p+j, 3p+j and 4p+j (section 3.2: five partitions).
func quantize(dst []byte, x []float32, c uint32) {
	quantizeFrom(quantizeTiles(dst, x, c), dst, x, c)
}

// quantizeFrom is quantize in Go, from byte j on.
func quantizeFrom(j int, dst []byte, x []float32, c uint32) {
	p := len(dst)
	whole := wholeBytes(p, len(x))
	if j < whole {
		dst := dst[j:whole]
		x0, x1, x2, x3, x4 := x[j:][:len(dst)], x[p+j:][:len(dst)], x[2*p+j:][:len(dst)], x[3*p+j:][:len(dst)], x[4*p+j:][:len(dst)]
		for j := range dst {
			q := classOf(math.Float32bits(x0[j]), c)
			q = q*4 + classOf(math.Float32bits(x1[j]), c)
			q = q*4 + classOf(math.Float32bits(x2[j]), c)
			q = q*4 + classOf(math.Float32bits(x3[j]), c)
			q = q*4 + classOf(math.Float32bits(x4[j]), c)
			dst[j] = quartic[q&1023]
		}
	}
	for j := whole; j < p; j++ {
		q := uint32(0)
		for i := j; i < 5*p; i += p {
			q *= 4
			if i < len(x) {
				q += classOf(math.Float32bits(x[i]), c)
			} else {
				q += padding
			}
		}
		dst[j] = quartic[q]
	}
}

// wholeBytes is the number of bytes, of p for n values, without padding.
func wholeBytes(p, n int) int { return max(n-4*p, 0) }

// quantizeSum sets dst as quantize does for the sums x[i]+e[i] (Figure 3, steps 1 and 2), and e to the sums less the
// delivered zeros and values of magnitude d (steps a and b).
func quantizeSum(dst []byte, x, e []float32, c uint32, d float32) {
	if d == 0 {
		// Kernels with AVX2 take the sign of a value from the delivered value. The sum less nothing is the sum.
		arith.Add(e, x, e)
		quantize(dst, e, c)
		return
	}
	quantizeSumFrom(quantizeSumTiles(dst, x, e, c, d), dst, x, e, c, d)
}

// quantizeSumFrom is quantizeSum in Go, from byte j on.
func quantizeSumFrom(j int, dst []byte, x, e []float32, c uint32, d float32) {
	p := len(dst)
	delivered := [4]float32{negative: -d, positive: d}
	whole := wholeBytes(p, len(x))
	if j < whole {
		dst := dst[j:whole]
		x0, x1, x2, x3, x4 := x[j:][:len(dst)], x[p+j:][:len(dst)], x[2*p+j:][:len(dst)], x[3*p+j:][:len(dst)], x[4*p+j:][:len(dst)]
		e0, e1, e2, e3, e4 := e[j:][:len(dst)], e[p+j:][:len(dst)], e[2*p+j:][:len(dst)], e[3*p+j:][:len(dst)], e[4*p+j:][:len(dst)]
		for j := range dst {
			T := x0[j] + e0[j]
			k := classOf(math.Float32bits(T), c)
			e0[j] = T - delivered[k]
			q := k

			T = x1[j] + e1[j]
			k = classOf(math.Float32bits(T), c)
			e1[j] = T - delivered[k]
			q = q*4 + k

			T = x2[j] + e2[j]
			k = classOf(math.Float32bits(T), c)
			e2[j] = T - delivered[k]
			q = q*4 + k

			T = x3[j] + e3[j]
			k = classOf(math.Float32bits(T), c)
			e3[j] = T - delivered[k]
			q = q*4 + k

			T = x4[j] + e4[j]
			k = classOf(math.Float32bits(T), c)
			e4[j] = T - delivered[k]
			q = q*4 + k

			dst[j] = quartic[q&1023]
		}
	}
	for j := whole; j < p; j++ {
		q := uint32(0)
		for i := j; i < 5*p; i += p {
			q *= 4
			if i < len(x) {
				T := x[i] + e[i]
				k := classOf(math.Float32bits(T), c)
				e[i] = T - delivered[k]
				q += k
			} else {
				q += padding
			}
		}
		dst[j] = quartic[q]
	}
}

// padding fills the block up to a multiple of five: section 3.2 adds 1 to the values, which makes them 0, 1 and 2, and
// then pads with zeros, which stand for -1.
const padding = negative

// quartic is the byte of five classes, the first in the highest bits: the polynomial of section 3.2, step 6, of their
// digits.
var quartic = func() (table [1024]byte) {
	digit := [4]byte{small: 1, negative: 0, positive: 2, smallNegative: 1}
	for q := range table {
		for shift := 8; shift >= 0; shift -= 2 {
			table[q] = table[q]*3 + digit[q>>shift&3]
		}
	}
	return table
}()
