package tensor

import (
	"math"
	"unsafe"
)

// These constants bound how a sum of gradients may differ from the sums before it. They were measured on trainings of
// integration/testdata/record_sums.py: the norm of a gradient was 0.4 to 2.2 of the median of the six before it,
// gradients had at least 2 % of elements of either sign, and none had a cosine of 0.9 with an earlier one and of less
// than 0.5 with the last. Weights that are averaged every few steps have a cosine of 0.98 and more with the average
// before.
const (
	recentSamples = 4    // samples of the last values that fitted in
	unlikeSamples = 4    // samples of the last values that did not
	recentNorms   = 8    // norms of the last values that fitted in
	unlikeNorm    = 1.5  // ratio to the range of these norms, either way, beyond which a value does not fit in
	largerNorm    = 1.1  // ratio to the greatest of them beyond which a value does not fit in that is more even than all of them
	evenerThanAll = 1.01 // by that ratio
	nearCosine    = 0.85 // minimum of the cosine with an earlier value that a value is near,
	repeatCosine  = 0.97 // minimum of the same for one that it repeats,
	repeatNorm    = 1.5  // maximum ratio of the norms of the two, either way,
	lastCosine    = 0.5  // and maximum of the cosine with the last value that fitted in
	freshCosine   = 0.8  // maximum of the cosine of a fresh value with any earlier one that it may be near
	signed        = 64   // elements that are not zero from which on a sample tells whether all have one sign
	mixed         = 0.05 // minimum part of the rarer sign in an earlier sample, for one sign to be news
	settles       = 3    // values that do not fit in, in a row, after which the next ones do: the sequence has changed
)

// A History holds samples of some earlier values of a block: the last ones that fitted into the sequence, and the last
// ones that did not, such as averages of weights every tenth step. The zero History holds none.
type History struct {
	recent          [recentSamples]sample
	unlike          [unlikeSamples]sample
	norms, shapes   [recentNorms]float64 // of values that fitted in; a shape is the mean magnitude over the root mean square
	values, unlikes int                  // that have come
	row             int                  // unlike values in a row, up to now
}

// MinHistory is the number of elements of a block from which on it has a History.
const MinHistory = 512

// HistorySize is the number of bytes of a History.
const HistorySize = int(unsafe.Sizeof(History{}))

// NewHistory returns the History of a block of n elements, or nil if it is too short for one.
func NewHistory(n int) *History {
	if n < MinHistory {
		return nil
	}
	return new(History)
}

// A sample is some elements of a value. The zero sample is none.
type sample struct {
	elements [sampleLen]uint16 // the upper halves of float32s
	norm     float64           // of the whole block
	square   float64           // squared norm of the elements
	minority float64           // share of the elements with the rarer sign, of all that are not zero
	signed   int               // elements that are not zero
}

// Judge is the content check: block may be coded with loss if the verdict is Fits. kept must hold the bytes that Keep
// kept of the block's last value, and then holds those of this one, whatever the verdict. There is nothing to compare
// if kept has another length than KeptSize says, if d is no float type, or if one of the values is zero or not finite:
// then the verdict is Unproved, and trust stays as it is. kept also stays as it is if it has another length. h is the
// block's History, which may be nil, and which then holds the block as well. block is read only.
func (t *Trust) Judge(d DType, block, kept []byte, h *History) Verdict {
	c, ok := compareKept(d, block, kept)
	if !ok {
		return Unproved
	}
	v, fresh := Fits, c.fresh()
	if h != nil {
		var alike float64
		v, alike = h.judge(d, block, math.Sqrt(c.norm), c.abs/math.Sqrt(c.norm*float64(c.n)))
		fresh = fresh && v == Fits && alike <= freshCosine
	}
	if v == Near || v.Foreign() {
		if !t.earned {
			v = Unproved
		}
		t.lose()
		return v
	}
	if !t.judge(c.plausible(), fresh) {
		return Unproved
	}
	return v
}

// judge compares a block with the samples, and keeps one of it. It returns Fits, Outlier, Near or a Foreign verdict,
// and the greatest cosine with an earlier value of about its norm.
func (h *History) judge(d DType, block []byte, norm, shape float64) (v Verdict, alike float64) {
	var s sample
	s.take(d, block, norm)
	alike = h.alike(&s)
	near := alike
	if h.values == 0 || s.cosine(&h.recent[(h.values-1)%recentSamples]) > lastCosine {
		near = 0
	}
	switch {
	case h.singleSigned(&s):
		v = SingleSigned
	case near >= repeatCosine:
		v = Repeats
	case near >= nearCosine || h.multiple(&s):
		v = Near
	case h.outlier(norm, shape):
		v = Outlier
	}
	if v == Fits || v == Outlier && h.row >= settles-1 {
		h.recent[h.values%recentSamples] = s
		h.norms[h.values%recentNorms], h.shapes[h.values%recentNorms] = norm, shape
		h.values++
	}
	if v == Fits {
		h.row = 0
	} else {
		h.row++
		h.unlike[h.unlikes%unlikeSamples] = s
		h.unlikes++
	}
	return v, alike
}

// take samples a block, at places that depend on its length only.
func (s *sample) take(d DType, block []byte, norm float64) {
	var v [sampleLen]float32
	gather(v[:], d, block)
	below := 0
	for i, x := range v {
		bits := math.Float32bits(x)
		s.elements[i] = uint16(bits >> 16)
		s.square += float64(x) * float64(x)
		if x != 0 {
			s.signed++
			below += int(bits >> 31)
		}
	}
	s.norm = norm
	if s.signed > 0 {
		s.minority = float64(min(below, s.signed-below)) / float64(s.signed)
	}
}

// cosine returns the cosine of two samples; 0 if one of them is zero or none.
func (s *sample) cosine(o *sample) float64 {
	if !(s.square > 0) || !(o.square > 0) {
		return 0
	}
	product := 0.0
	for i := range s.elements {
		product += float64(s.at(i)) * float64(o.at(i))
	}
	return product / math.Sqrt(s.square*o.square)
}

// singleSigned reports whether all elements of s have one sign, while earlier values have elements of both.
func (h *History) singleSigned(s *sample) bool {
	if s.signed < signed || s.minority > 0 {
		return false
	}
	for i := range h.recent {
		if h.recent[i].minority >= mixed {
			return true
		}
	}
	return false
}

// alike returns the greatest cosine of s with an earlier value of about its norm.
func (h *History) alike(s *sample) (cosine float64) {
	for _, kept := range [...][]sample{h.recent[:], h.unlike[:]} {
		for i := range kept {
			if o := &kept[i]; o.norm <= repeatNorm*s.norm && s.norm <= repeatNorm*o.norm {
				cosine = max(cosine, s.cosine(o))
			}
		}
	}
	return cosine
}

// multiple reports whether s is a multiple of an earlier value, as where a rank sums its own gradients once more in
// another way. No gradient is.
func (h *History) multiple(s *sample) bool {
	now := s.kept()
	for _, kept := range [...][]sample{h.recent[:], h.unlike[:]} {
		for i := range kept {
			o := &kept[i]
			if k, ok := now.ratio(o.at, keptMultiple); ok {
				if earlier := o.kept(); now.times(k, &earlier, keptMultiple) {
					return true
				}
			}
		}
	}
	return false
}

// kept returns the elements, as far as they are kept.
func (s *sample) kept() (v Sample) {
	for i := range v {
		v[i] = s.at(i)
	}
	return v
}

// at returns one of the elements, as far as it is kept.
func (s *sample) at(i int) float32 { return math.Float32frombits(uint32(s.elements[i]) << 16) }

// outlier reports whether a norm is out of the range of the norms before, or a value is both larger and more even than
// all before, as weights are.
func (h *History) outlier(norm, shape float64) bool {
	low, high, even := math.Inf(1), 0.0, 0.0
	for i, x := range h.norms {
		if x > 0 {
			low, high, even = min(low, x), max(high, x), max(even, h.shapes[i])
		}
	}
	return high > 0 && (norm > unlikeNorm*high || norm*unlikeNorm < low || norm > largerNorm*high && shape > evenerThanAll*even)
}
