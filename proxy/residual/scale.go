package residual

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

// A scale is the content check of sparse gradients. Their rows have no last value to be compared with, and the rows of
// one message may be a thousand times as frequent as others, so a block is compared with the range in which the blocks
// of earlier values lay: its root mean square must be within a factor of 4 of that range. A block outside ends trust,
// until some values in a row have been within it: three, six after the second such block, up to 3072, and three again
// after many values that fitted, as with dense tensors (tensor.Trust). Roles of sparse tensors are proved on the wire:
// this is the second look. The zero scale has seen nothing, and trusts no block until a value after the first.
type scale struct {
	low, high       float64 // mean squares of the blocks of earlier values; 0: there were none
	nowLow, nowHigh float64 // of the current value; 0: none so far
	strange         bool    // one of its blocks is out of range
	lost            bool
	fits            int // values in a row that fitted
	need            int // such values, to win trust back; doubles with each loss, until many values have fitted
}

const (
	scaleRatio   = 4.0 * 4.0 // of mean squares
	scaleNarrows = 64.0 / 63 // by which the range narrows from value to value, unless blocks keep it open
	minFits      = 3
	maxFits      = 3 << 10
	goodFits     = 16 // so many values for each one that trust needed make good for its loss
)

// begin notes that the next value comes.
func (s *scale) begin() {
	if s.nowHigh == 0 {
		return
	}
	if s.high == 0 {
		s.low, s.high = s.nowLow, s.nowHigh
	} else {
		s.low, s.high = min(s.nowLow, s.low*scaleNarrows), max(s.nowHigh, s.high/scaleNarrows)
	}
	if s.fits++; s.strange {
		s.fits = 0
	}
	if s.fits >= s.need {
		s.lost = false
	}
	if s.fits >= goodFits*s.need {
		s.need = 0
	}
	s.nowLow, s.nowHigh, s.strange = 0, 0, false
}

// check takes note of a block of that mean square, and reports whether it may lose something; first says that no value
// came before this one.
func (s *scale) check(square float64) (plausible, first bool) {
	if first = s.high == 0; !(square > 0) || math.IsInf(square, 0) {
		return false, first
	}
	if s.nowHigh == 0 {
		s.nowLow = square
	}
	s.nowLow, s.nowHigh = min(s.nowLow, square), max(s.nowHigh, square)
	if first {
		return false, true
	}
	if square*scaleRatio < s.low || square > s.high*scaleRatio {
		if s.strange = true; !s.lost {
			s.lost, s.need = true, min(max(minFits, 2*s.need), maxFits)
		}
		s.fits = 0
	}
	return !s.lost, false
}

// meanSquare returns the mean of the squares of a block's elements.
func meanSquare(d tensor.DType, block []byte) float64 {
	n := len(block) / d.Size()
	if v := tensor.View(block); d == tensor.Float32 && v != nil {
		return feedback.SquaredNorm(v) / float64(n)
	}
	var piece [256]float32
	sum := 0.0
	for len(block) > 0 {
		k := min(len(piece), len(block)/d.Size())
		tensor.ToFloat32(piece[:k], block[:k*d.Size()], d)
		sum += feedback.SquaredNorm(piece[:k])
		block = block[k*d.Size():]
	}
	return sum / float64(n)
}
