package skcompress

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/datasketches-go/tdigest"
)

const (
	defaultM = 128
	minM     = 16
	maxM     = 1 << 12
)

// A Quantiles is a mergeable quantile sketch (section 2.3): of any number of values it keeps at most 2m+10 summaries,
// from which ranks are answered, at m = 256 within 1 %. The paper takes it from Yahoo's DataSketches, and so do we,
// from their successor's t-digests ([Dunning and Ertl]): its other quantile sketches draw random bits from a source
// that nobody can seed, and these draw none. The same values in the same order make the same sketch.
//
// [Dunning and Ertl]: https://arxiv.org/abs/1902.04023
type Quantiles struct {
	m        int
	digest   *tdigest.Double // nil while chunk has room for all
	chunk    []float32       // values that are not in digest yet
	min, max float32
	count    int
}

// NewQuantiles returns an empty sketch of size m, which is 16 to 4,096.
func NewQuantiles(m int) *Quantiles {
	if m < minM || m > maxM {
		panic(fmt.Sprintf("skcompress: a quantile sketch of size %d", m))
	}
	s := &Quantiles{m: m}
	s.reset()
	return s
}

// reset makes s empty, and keeps its memory.
func (s *Quantiles) reset() {
	inf := float32(math.Inf(1))
	s.digest, s.chunk = nil, s.chunk[:0]
	s.min, s.max, s.count = inf, -inf, 0
}

// Add counts v, which is finite.
func (s *Quantiles) Add(v float32) {
	if len(s.chunk) == 4*(2*s.m+10) { // the digest's own buffer is as long: that much it merges at once
		s.flush()
	}
	s.chunk = append(s.chunk, v)
	s.min, s.max = min(s.min, v), max(s.max, v)
	s.count++
}

// flush gives chunk to the digest. It sorts first, since the digest's own sort is a stable one: three times as slow,
// but quick where all is in order.
func (s *Quantiles) flush() {
	if s.digest == nil {
		d, err := tdigest.NewDouble(uint16(s.m))
		if err != nil {
			panic(fmt.Sprintf("skcompress: a quantile sketch of size %d: %v", s.m, err))
		}
		s.digest = d
	}
	slices.Sort(s.chunk)
	for _, v := range s.chunk {
		if err := s.digest.Update(float64(v)); err != nil {
			panic(fmt.Sprintf("skcompress: %v in a quantile sketch: %v", v, err))
		}
	}
	s.chunk = s.chunk[:0]
}

// Splits appends the q+1 ascending values that divide the counted values, at least one, into q parts of equally many
// (section 4.1, step 1): the quantiles 0, 1/q, ..., (q-1)/q and the largest value.
func (s *Quantiles) Splits(dst []float32, q int) []float32 {
	all := s.summaries()
	dst = append(dst, s.min)
	last := s.min
	for i := 1; i < q; i++ {
		last = min(max(last, all.at(float64(i)/float64(q)*float64(s.count))), s.max)
		dst = append(dst, last)
	}
	return append(dst, s.max)
}

// summaries are the contents of a sketch: in ascending order, values and the number of values that each stands for.
type summaries struct {
	means, weights []float64
	next           int     // the one that at has come to
	middle         float64 // how many values are less than its mean
}

// summaries returns the contents of s. They are read from the digest's serialized form, which is the same in all
// languages (tdigest/double_encoder.go): its Quantile interpolates the wrong way round as of v0.2.0, and is five times
// as wrong as need be (https://github.com/apache/datasketches-go/pull/171).
func (s *Quantiles) summaries() *summaries {
	all := &summaries{}
	if s.digest == nil {
		slices.Sort(s.chunk)
		for _, v := range s.chunk {
			all.means = append(all.means, float64(v))
			all.weights = append(all.weights, 1)
		}
		all.middle = 0.5
		return all
	}
	s.flush()
	const header = 32 // bytes: 8 of preamble, the number of summaries, 0, and the ends
	b, err := tdigest.EncodeDouble(s.digest, false)
	if err != nil {
		panic(fmt.Sprintf("skcompress: reading a quantile sketch: %v", err))
	}
	for b = b[header:]; len(b) > 0; b = b[16:] {
		all.means = append(all.means, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		all.weights = append(all.weights, float64(binary.LittleEndian.Uint64(b[8:])))
	}
	all.middle = all.weights[0] / 2
	return all
}

// at returns about the value that so many values are less than. In calls in a row rank does not fall. A summary's
// values are taken to lie around its mean, as many below as above, and between two means as on a line; but a summary of
// one value is just that.
func (a *summaries) at(rank float64) float32 {
	for {
		i := a.next
		if i+1 == len(a.means) || rank <= a.middle {
			return float32(a.means[i])
		}
		after := a.middle + (a.weights[i]+a.weights[i+1])/2
		if rank >= after {
			a.next, a.middle = i+1, after
			continue
		}
		low, high := a.middle, after // of the line
		if a.weights[i] == 1 {
			low += 0.5
		}
		if a.weights[i+1] == 1 {
			high -= 0.5
		}
		switch {
		case rank < low:
			return float32(a.means[i])
		case rank >= high:
			return float32(a.means[i+1])
		}
		part := (rank - low) / (high - low)
		return float32(a.means[i] + float64(part*(a.means[i+1]-a.means[i])))
	}
}
