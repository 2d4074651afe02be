package gloo

import (
	"github.com/gradproxy/gradproxy/tensor"
)

// The element type is not on the wire. It shows in the bits: of the four float types only the right one gives exponents
// with the spread that real tensors have. A wrong width or a wrong exponent field stretches or squeezes the spread by a
// factor of 8, or takes the mantissa's uniform bits for an exponent, so that infinities and NaNs appear. Integers and
// text fit no float type. There is no verdict if two types fit, or none.

// A verdict is the judgement on the bytes of a message or of a collective: which element type they have.
type verdict uint8

const (
	noEvidence verdict = iota // too few elements that are not zero
	noFloat                   // enough of them, but no float type fits, or more than one
	isFloat32                 // the verdicts from here on name a type
	isFloat64
	isFloat16
	isBFloat16
)

// verdicts are the verdicts on the two newest values of a tensor, the newer first.
type verdicts [2]verdict

// add notes the verdict on a newer value; a verdict without evidence changes nothing.
func (vs *verdicts) add(v verdict) {
	if v != noEvidence {
		vs[1], vs[0] = vs[0], v
	}
}

var verdictTypes = [...]tensor.DType{isFloat32: tensor.Float32, isFloat64: tensor.Float64, isFloat16: tensor.Float16, isBFloat16: tensor.BFloat16}

// dtype returns the type that v names, or NoDType.
func (v verdict) dtype() tensor.DType { return verdictTypes[v] }

// and returns the verdict of two parts of one tensor.
func (v verdict) and(w verdict) verdict {
	switch {
	case v == noEvidence || v == w:
		return w
	case w == noEvidence:
		return v
	}
	return noFloat
}

// Bounds on the bits of a float tensor, found on gradients, weights and activations of real jobs against integers,
// text, audio and random bytes.
const (
	minNonzero   = 64   // elements, below which there is no evidence
	sureNonzero  = 1000 // elements, below which the tests may fail by chance
	maxSubnormal = 0.02 // share; maxSubnormalHalf for Float16
	maxIQR       = 7    // binades between the quartiles of the exponents; at least 1
	maxTail      = 12   // binades between the median and the 99th percentile
	lowMedian    = -60  // median exponents; lowMedianHalf and highMedianHalf for Float16
	highMedian   = 20

	maxSubnormalHalf = 0.30
	lowMedianHalf    = -24
	highMedianHalf   = 15

	lowTopBit, highTopBit = 0.25, 0.60 // share of elements whose top mantissa bit is set
	lowSign, highSign     = 0.20, 0.80 // share of negative elements
)

// evidence counts the bits of 8-byte words of a message as each of the four float types reads them. All exponents lie
// in the upper 16 bits of an element, so that the 16-bit pieces of a word, counted by their upper 10 bits (sign, 8 bits
// of exponent, top bit of the mantissa of the wider types) serve Float32, BFloat16 and Float16 at once.
type evidence struct {
	words  int
	pieces [4][1 << 10]uint16 // by place in the word; at most sampleLen/8 of each, so they do not overflow
	double [1 << 12]uint16    // sign and exponent of Float64
	top64  int                // words whose top mantissa bit as Float64 is set
	zero64 int                // words that are zero as Float64
	zero32 int                // halves that are zero as Float32
	zero16 [4]int             // pieces that are zero
}

// word counts one word.
func (e *evidence) word(w uint64) {
	e.words++
	e.pieces[0][w>>6&0x3ff]++
	e.pieces[1][w>>22&0x3ff]++
	e.pieces[2][w>>38&0x3ff]++
	e.pieces[3][w>>54]++
	e.double[w>>52]++
	e.top64 += int(w >> 51 & 1)
	if w&0x7fff7fff7fff7fff == 0 { // the usual zeros, all at once
		if w<<1 == 0 {
			e.zero64++
		}
		if uint32(w)<<1 == 0 {
			e.zero32++
		}
		if uint32(w>>32)<<1 == 0 {
			e.zero32++
		}
		e.zero16[0]++
		e.zero16[1]++
		e.zero16[2]++
		e.zero16[3]++
		return
	}
	if uint32(w)<<1 == 0 {
		e.zero32++
	}
	if uint32(w>>32)<<1 == 0 {
		e.zero32++
	}
	e.zero16[0] += zero(w)
	e.zero16[1] += zero(w >> 16)
	e.zero16[2] += zero(w >> 32)
	e.zero16[3] += zero(w >> 48)
}

// zero returns 1 if the low 16 bits of w are a zero of either sign.
func zero(w uint64) int { return int((w&0x7fff - 1) >> 63) }

// A field is how one float type sees the evidence.
type field struct {
	exponents []int // elements by exponent field, without zeros
	bias      int
	nonzero   int
	negative  int
	topBit    int
	subnormal int
}

// verdict judges a message of size bytes by the words counted of it.
func (e *evidence) verdict(size int) verdict {
	var single, brain, half, double field
	var s, b [256]int
	var h [32]int
	var d [2048]int
	single, brain, half, double = field{exponents: s[:], bias: 127}, field{exponents: b[:], bias: 127},
		field{exponents: h[:], bias: 15}, field{exponents: d[:], bias: 1023}
	zero16 := 0
	for place := range e.pieces {
		zero16 += e.zero16[place]
		for i, n := range e.pieces[place] {
			if n == 0 {
				continue
			}
			brain.count(i>>9, i>>1&0xff, i&1, int(n))
			half.count(i>>9, i>>4&0x1f, i>>3&1, int(n))
			if place&1 == 1 {
				single.count(i>>9, i>>1&0xff, i&1, int(n))
			}
		}
	}
	for i, n := range e.double {
		if n != 0 {
			double.count(i>>11, i&0x7ff, 0, int(n))
		}
	}
	double.topBit = e.top64
	single.zeros(e.zero32)
	brain.zeros(zero16)
	half.zeros(zero16)
	double.zeros(e.zero64)
	return e.judge(size, &single, &double, &brain, &half)
}

// judge is the verdict by the evidence as each float type sees it.
func (e *evidence) judge(size int, single, double, brain, half *field) verdict {
	isSingle, isDouble := size%4 == 0 && single.fits(false), size%8 == 0 && double.fits(false)
	isBrain, isHalf := size%2 == 0 && brain.fits(false), size%2 == 0 && half.fits(true)
	// Where all values lie in few binades, the mantissa of a narrower type passes for a wider one's exponent.
	isDouble = isDouble && !e.alike(1, 3)
	isSingle = isSingle && (isBrain && !brain.isHalf() || !e.alike(0, 1) && !e.alike(2, 3))
	isBrain = isBrain && !brain.isHalf()
	if isDouble {
		isSingle = false
	}
	if isSingle && isBrain {
		// Either BFloat16, or Float32 that holds values of 16 bits, whose lower halves are zero.
		even, odd := e.zero16[0]+e.zero16[2], e.zero16[1]+e.zero16[3]
		alike := 8*abs(even-odd) <= 2*e.words
		isSingle, isBrain = !alike, alike
	}
	switch [4]bool{isSingle, isDouble, isBrain, isHalf} {
	case [4]bool{true, false, false, false}:
		return isFloat32
	case [4]bool{false, true, false, false}:
		return isFloat64
	case [4]bool{false, false, true, false}:
		return isBFloat16
	case [4]bool{false, false, false, true}:
		return isFloat16
	case [4]bool{}:
		if 2*(e.words-e.zero64) < sureNonzero {
			return noEvidence
		}
	}
	return noFloat
}

// alike reports whether pieces of two places have the same exponents, so that both are the upper ones of elements. The
// lower pieces of an element are bits of the mantissa, which are uniform or zero.
func (e *evidence) alike(low, high int) bool {
	var exponents [2][256]int
	for i, place := range [2]int{low, high} {
		for bits, n := range e.pieces[place] {
			exponents[i][bits>>1&0xff] += int(n)
		}
	}
	common, lows := 0, 0
	for x := 1; x < 256; x++ {
		common += min(exponents[0][x], exponents[1][x])
		lows += exponents[0][x]
	}
	return lows >= minNonzero && 2*common > lows
}

func abs(x int) int {
	if x < 0 {
		return -x
	}
	return x
}

// isHalf reports whether values that look like BFloat16 are rather Float16 values of few binades. Read as BFloat16, a
// Float16 has three bits of its mantissa in the lowest bits of the exponent, so that the eight exponents of a binade
// are about as frequent as each other, where the ones of BFloat16 halve from one to the next.
func (f *field) isHalf() bool {
	const binade = 8
	var full, second int // elements of the two fullest binades
	var fullest []int
	for first := 0; first < len(f.exponents); first += binade {
		n := 0
		for _, x := range f.exponents[first : first+binade] {
			n += x
		}
		switch {
		case n > full:
			full, second, fullest = n, full, f.exponents[first:first+binade]
		case n > second:
			second = n
		}
	}
	if 1000*full >= 999*f.nonzero {
		return full > 0
	}
	smallest, largest := full, 0
	for _, x := range fullest {
		if 64*x >= full {
			smallest, largest = min(smallest, x), max(largest, x)
		}
	}
	return 100*(full+second) >= 99*f.nonzero && largest < 2*smallest
}

// count adds n elements.
func (f *field) count(sign, exponent, top, n int) {
	f.exponents[exponent] += n
	f.negative += sign * n
	f.topBit += top * n
	f.nonzero += n
	if exponent == 0 {
		f.subnormal += n
	}
}

// zeros takes n zeros out of the elements counted.
func (f *field) zeros(n int) {
	f.exponents[0] -= n
	f.nonzero -= n
	f.subnormal -= n
}

// fits reports whether the elements look like a float tensor's.
func (f *field) fits(half bool) bool {
	subnormals, low, high := maxSubnormal, float64(lowMedian), float64(highMedian)
	if half {
		subnormals, low, high = maxSubnormalHalf, lowMedianHalf, highMedianHalf
	}
	n := float64(f.nonzero)
	switch {
	case f.nonzero < minNonzero,
		f.exponents[len(f.exponents)-1] != 0, // infinity, NaN
		float64(f.subnormal) >= subnormals*n,
		outside(f.topBit, n, lowTopBit, highTopBit),
		outside(f.negative, n, lowSign, highSign):
		return false
	}
	median := f.quantile(0.5)
	spread := f.quantile(0.75) - f.quantile(0.25)
	binade := median - float64(f.bias)
	return spread >= 1 && spread <= maxIQR && f.quantile(0.99)-median <= maxTail && binade >= low && binade <= high
}

func outside(count int, n, low, high float64) bool {
	share := float64(count) / n
	return share < low || share > high
}

// quantile returns the exponent field below which the share q of the elements lie, interpolated within a binade: where
// fields of 8 bits are read as of 5, quartiles that are two binades apart come out a quarter of one apart.
func (f *field) quantile(q float64) float64 {
	rest := q * float64(f.nonzero)
	for i, n := range f.exponents {
		x := float64(n)
		if rest < x {
			return float64(i) + rest/x
		}
		rest -= x
	}
	return float64(len(f.exponents))
}
