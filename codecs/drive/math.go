package drive

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/rng"
)

// flip multiplies x with D, the signs drawn from seed.
func flip(x []float32, seed uint32) {
	r := rng.From(uint64(seed))
	for len(x) > 0 {
		signs, part := r.Uint64(), x[:min(64, len(x))]
		for i, v := range part {
			part[i] = math.Float32frombits(math.Float32bits(v) ^ uint32(signs)<<31)
			signs >>= 1
		}
		x = x[len(part):]
	}
}

// hadamard multiplies x with the Hadamard matrix; len(x) must be a power of two: H₁ = 1, H₂ₕ = (Hₕ Hₕ; Hₕ -Hₕ). The
// order of additions is fixed, two levels a pass; of whole numbers, the sums are exact up to 2^24.
func hadamard(x []float32) {
	h := 1
	if len(x) >= 4 {
		for i := 0; i+4 <= len(x); i += 4 {
			q := x[i:][:4]
			a, b, c, d := q[0]+q[1], q[0]-q[1], q[2]+q[3], q[2]-q[3]
			q[0], q[1], q[2], q[3] = a+c, b+d, a-c, b-d
		}
		h = 4
	}
	for ; 4*h <= len(x); h *= 4 {
		for i := 0; i < len(x); i += 4 * h {
			p, q, r, s := x[i:][:h], x[i+h:][:h], x[i+2*h:][:h], x[i+3*h:][:h]
			for j := range p {
				a, b, c, d := p[j]+q[j], p[j]-q[j], r[j]+s[j], r[j]-s[j]
				p[j], q[j], r[j], s[j] = a+c, b+d, a-c, b-d
			}
		}
	}
	if 2*h <= len(x) { // the length is 2 times a power of 4
		p, q := x[:h], x[h:][:h]
		for j := range p {
			p[j], q[j] = p[j]+q[j], p[j]-q[j]
		}
	}
}

// norm1 returns the sum of magnitudes, in a fixed order.
func norm1(x []float32) float64 {
	var s [8]float64
	for i, v := range x {
		s[i%8] += math.Abs(float64(v))
	}
	return add(s)
}

// norm2 returns the sum of squares, in a fixed order.
func norm2(x []float32) float64 {
	var s [8]float64
	for i, v := range x {
		s[i%8] += float64(float64(v) * float64(v))
	}
	return add(s)
}

func add(s [8]float64) float64 {
	return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
}

// minError returns c = S/√d for S = ‖Rx‖₁/d, where l1 is ‖HDx‖₁ = √d·‖Rx‖₁.
func minError(l1 float64, d int) float32 { return float32(l1 / float64(d) / float64(d)) }

// unbiased returns c = S/√d for S = ‖x‖₂²/‖Rx‖₁.
func unbiased(squares, l1 float64) float32 {
	if squares == 0 {
		return 0
	}
	return float32(squares / l1)
}

// signsLen is the number of bytes that hold d signs.
func signsLen(d int) int { return (d + 7) / 8 }

// appendSigns appends the signs of x, zeros being positive.
func appendSigns(dst []byte, x []float32) []byte {
	for len(x) >= 8 {
		var b byte
		for k, v := range x[:8] {
			b |= sign(v) << k
		}
		dst, x = append(dst, b), x[8:]
	}
	if len(x) > 0 {
		var b byte
		for k, v := range x {
			b |= sign(v) << k
		}
		dst = append(dst, b)
	}
	return dst
}

// sign is 1 if x is negative.
func sign(x float32) byte { return byte(math.Float32bits(x+0) >> 31) } // -0 + 0 is 0

// readSigns sets x to 1 and -1.
func readSigns(x []float32, src []byte) {
	const one = 0x3f800000
	for j, b := range src {
		for k := range min(8, len(x)-8*j) {
			x[8*j+k] = math.Float32frombits(one | uint32(b>>k)<<31)
		}
	}
}
