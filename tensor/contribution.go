package tensor

import "math"

// These constants bound the result of a sum of gradients, beside this rank's input to it. They were measured on
// trainings of integration/testdata/record_sums.py: of the changes from an input to the result, at least 13 % had the
// rarer sign (6.7 % in the second table of docs/loss.md), the changes were never nearer to a multiple of the input than
// 13 % of their norm, and no result was 50 times as small as the input in more than a tenth of its elements.
const (
	changedElements = 48   // minimum of elements that differ, for their signs to tell anything,
	oneSided        = 0.02 // and the share of the rarer sign up to which the result is a maximum or a minimum
	sameElement     = 1e-5 // relative difference up to which two elements are the same, after a residual was added and taken away
	sameInputs      = 1e-3 // difference of the change and a multiple of the input, over the change, up to which all ranks' inputs are the same
	lostElement     = 0.02 // ratio of an element of the result and of the input up to which the input is lost in the result,
	lostElements    = 0.9  // and the minimum share of such elements in a product
)

// A Contribution is a sample of a message of an all-reduce, which holds the inputs of some ranks. It is compared with
// the sample of the same elements of the result. The zero Contribution is none.
type Contribution struct {
	DType     DType
	Size      int    // bytes of the message
	own       Sample // as the app has sent it
	delivered Sample // as it arrived, which is off by the loss
}

// Contribute returns the Contribution of a message that arrives as it is, and false if it is too short for one or no
// float type's.
func Contribute(d DType, message []byte) (c Contribution, ok bool) {
	if !d.Valid() || !d.Float() || len(message)/d.Size() < MinHistory || len(message)%d.Size() != 0 {
		return c, false
	}
	c.DType, c.Size = d, len(message)
	gather(c.own[:], d, message)
	c.delivered = c.own
	return c, true
}

// Lost notes the loss of the message: before and after are the residual of all its elements before and after the
// encoding, sampled by SampleResidual.
func (c *Contribution) Lost(before, after *Sample) {
	for i := range c.delivered {
		c.delivered[i] = c.own[i] + before[i] - after[i]
	}
}

// Judge compares the Contribution with the same elements of the result.
func (c *Contribution) Judge(result *Sample) Verdict {
	var up, down, there, lost int
	var own, change, product, norm float64
	for i, r := range result {
		x, d := float64(c.own[i]), float64(r)-float64(c.delivered[i])
		if math.IsNaN(d) || math.IsInf(d, 0) || math.IsInf(x, 0) {
			return Fits
		}
		switch same := sameElement * max(math.Abs(float64(c.delivered[i])), math.Abs(x)); {
		case d > same:
			up++
		case d < -same:
			down++
		}
		if x != 0 {
			if there++; math.Abs(float64(r)) <= lostElement*math.Abs(x) {
				lost++
			}
		}
		own += x * x
		change += d * d
		product += x * d
		norm += float64(r) * float64(r)
	}
	more, less := max(up, down), min(up, down)
	switch {
	case there >= signed && float64(lost) >= lostElements*float64(there):
		return Product
	case more < changedElements || own == 0 || change == 0:
		return Fits
	case float64(less) <= oneSided*float64(more):
		return OneSided
	case product > 0 && change-product*product/own <= sameInputs*sameInputs*change:
		return Replicated
	}
	return Fits
}

// Repeats reports whether the message is a multiple of the result of an earlier message of as many elements. All ranks
// have that result, and no gradient of theirs is like it: the rank has made the message from the result.
func (c *Contribution) Repeats(earlier *Sample) bool { return c.own.multiple(earlier, exactMultiple) }

// A ResultSampler samples the result of a message as its bytes pass, in order.
type ResultSampler struct {
	size  int // of an element, in bytes
	p     places
	i     int // elements sampled
	want  int // offset of the next one, in bytes
	from  int // offset of the next byte
	bytes [sampleLen * 8]byte
	have  int // bytes of the next one that have come
	d     DType
}

// NewResultSampler returns a sampler of the result that is compared with c.
func (c *Contribution) NewResultSampler() *ResultSampler {
	s := &ResultSampler{size: c.DType.Size(), d: c.DType, p: placesOf(c.Size / c.DType.Size())}
	s.want = s.p.next() * s.size
	return s
}

// Feed takes the bytes at offset off of the result. It reports false if bytes before them are missing.
func (s *ResultSampler) Feed(off int, b []byte) bool {
	if off != s.from {
		return false
	}
	s.from += len(b)
	for s.i < sampleLen && s.want+s.have < s.from {
		n := copy(s.bytes[s.i*s.size+s.have:(s.i+1)*s.size], b[s.want+s.have-off:])
		if s.have += n; s.have < s.size {
			return true
		}
		if s.i, s.have = s.i+1, 0; s.i < sampleLen {
			s.want = s.p.next() * s.size
		}
	}
	return true
}

// Result returns the sample, and false if elements are missing.
func (s *ResultSampler) Result() (v Sample, ok bool) {
	if s.i < sampleLen {
		return v, false
	}
	ToFloat32(v[:], s.bytes[:sampleLen*s.size], s.d)
	return v, true
}
