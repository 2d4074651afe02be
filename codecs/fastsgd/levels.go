package fastsgd

import "math"

// sumOf returns the sum of all |v|, line 1 of Algorithm 1, exactly or rounded up; ok is false if it is not finite,
// since a value is not.
func sumOf(v []float32) (sum float64, ok bool) {
	var s0, s1, s2, s3 float64
	smallest := uint32(math.MaxUint32) // of the bits of magnitudes that are not 0, less 1
	i := 0
	for ; i+3 < len(v); i += 4 {
		w := v[i : i+4 : i+4]
		a, b := math.Float32bits(w[0])&^signBit, math.Float32bits(w[1])&^signBit
		c, d := math.Float32bits(w[2])&^signBit, math.Float32bits(w[3])&^signBit
		smallest = min(smallest, min(a-1, b-1), min(c-1, d-1))
		s0 += float64(math.Float32frombits(a))
		s1 += float64(math.Float32frombits(b))
		s2 += float64(math.Float32frombits(c))
		s3 += float64(math.Float32frombits(d))
	}
	for ; i < len(v); i++ {
		a := math.Float32bits(v[i]) &^ signBit
		smallest = min(smallest, a-1)
		s0 += float64(math.Float32frombits(a))
	}
	sum = (s0 + s1) + (s2 + s3)
	if !(sum <= math.MaxFloat64) {
		return 0, false
	}
	if sum == 0 {
		return 0, true
	}
	// All sums are multiples of the least value's last bit. If they have at most 53 bits from there on, none was
	// rounded.
	last := max(int((smallest+1)>>23), 1) - 127 - 23
	if math.Ilogb(sum)-last < 53 {
		return sum, true
	}
	// Otherwise each of fewer than n additions may have lost a part of 2^-53, and the next line may.
	return sum + float64(sum*(float64(len(v))*0x1p-52)), true
}

const signBit = 1 << 31

// A scale has the magnitudes of the levels of one block: T[L] stands for magnitudes from T[L] to T[L-1], in terms of
// the paper for R = sum/|v| with b^(L-1) < R <= b^L.
type scale struct {
	T         []float32
	top, unit float64 // about log2 of T[0], and the number of levels that double a magnitude
}

// set makes the scale of 0 < sum < ∞ for 0 <= L <= τ. Since T is rounded up at each step, |v| < T[L-1] implies
// |v| < X[L-1], hence |v|/b < X[L] <= T[L]: the delivered magnitude of v is never less than |v|/b.
func (s *scale) set(sum, b float64, tau int) {
	if cap(s.T) <= tau {
		s.T = make([]float32, tau+1)
	}
	s.T = s.T[:tau+1]
	X := sum
	for L := range s.T {
		s.T[L] = ceil32(X)
		X = ceilQuotient(X, b)
	}
	s.top, s.unit = math.Log2(sum), 1/math.Log2(b)
}

// ceil32 returns the least float32 that is at least x, which may be +Inf.
func ceil32(x float64) float32 {
	y := float32(x)
	if float64(y) < x {
		y = math.Nextafter32(y, float32(math.Inf(1)))
	}
	return y
}

// ceilQuotient returns the least float64 that is at least x/b.
func ceilQuotient(x, b float64) float64 {
	q := x / b
	if math.FMA(q, b, -x) < 0 { // q·b < x over the reals: a single rounding keeps the sign
		q = math.Nextafter(q, math.Inf(1))
	}
	return q
}

// level returns L = ⌈log_b(sum/a)⌉, which is the least with T[L] <= a. a is at least T[τ].
func (s *scale) level(a float32) int {
	// The logarithms only give the place to begin: T decides the level, alike on every machine.
	bits := math.Float32bits(a)
	f := float64(bits&(1<<23-1)) * 0x1p-23
	log := float64(int(bits>>23)-127) + f + 0.34*f*(1-f) // within 0.01 but for subnormal numbers
	L := min(max(int((s.top-log)*s.unit)+1, 0), len(s.T)-1)
	for L > 0 && s.T[L-1] <= a {
		L--
	}
	for s.T[L] > a {
		L++
	}
	return L
}
