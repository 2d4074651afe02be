package tensor

import (
	"encoding/binary"
	"math"
)

// These constants bound the difference between successive values of a sum of gradients. In DistributedDataParallel, with
// batches from 64 examples to nearly the whole data set, the change from one sum to the next was measured as 0.23 to 2.5 of the
// sum's norm. Averaged weights, the other content of such all-reduces, changed by 0.03 to 0.13 of their norm after five local steps.
//
// The first weights that come in the place of gradients change much. Their norm is larger than that of the gradients. Where it is not
// much larger, the gradients are spiky, as gradients of mostly zero inputs are: their mean magnitude is 0.4 of their root mean
// square, and that of weights 0.8 to 0.87, like that of normal and of uniform values. Sums that have lost detail are spikier still, and
// their spikiness varies from one sum to the next.
const (
	maxNormRatio   = 4.0     // between the two values' norms, either way
	evenShape      = 0.75    // minimum mean magnitude over root mean square of weights
	evenerShape    = 1.5     // minimum ratio of that to the same of the last value, where weights follow gradients
	evenerNorm     = 1.5     // minimum ratio of the two norms there
	minChange      = 0.2     // minimum norm of the difference over the norm of the newer value
	freshChange    = 1.0     // minimum of the same for a fresh random value
	freshValues    = 3       // fresh values in a row that restore trust
	maxFreshValues = 3 << 10 // maximum of them, after many losses of trust
	goodValues     = 16      // values that must pass, for each required fresh value, until an earlier loss of trust is forgotten
)

// Trust is the content check of one block of a tensor: it decides for each value of the block whether it may be coded with loss. It
// runs just before lossy coding, on facts that the parser could not have at the block's first byte. It refuses, and never proves.
//
// A value is plausible if it looks like the next sum of gradients after the last value: the two norms are within a factor of 4,
// the difference is not as small as that of weights, and the magnitudes have not suddenly become as even as those of weights. The zero
// Trust trusts. A value that is not plausible ends trust. Three plausible values in a row that each differ from the value before by at
// least their own norm restore it; after the second loss of trust six are needed, after the third twelve, and at most 3072, so that a tensor
// that alternates between gradients and something else soon travels exactly. Once sixteen times as many values have passed,
// earlier losses are forgotten.
type Trust struct {
	lost  bool
	fresh uint16 // fresh values in a row
	need  uint16 // fresh values in a row that restore trust; it doubles with each loss
	good  uint16 // values that have passed since trust was restored
}

// Check reports whether block may be coded with loss. kept must hold the bytes that Keep kept of the block's last value, and then holds
// those of this one, whatever the result. There is nothing to compare if kept has another length than KeptSize says, if d is no
// float type, or if one of the values is zero or not finite: then block may not be coded with loss, and trust stays as it
// is. kept also stays as it is if it has another length. block is read only.
func (t *Trust) Check(d DType, block, kept []byte) bool {
	return t.judge(compareKept(d, block, kept))
}

// judge returns the result of Check for a change; ok is false if there was nothing to compare.
func (t *Trust) judge(c change, ok bool) bool {
	switch {
	case !ok:
		return false
	case !t.lost:
		if t.lost = !c.plausible(); t.lost {
			t.fresh, t.good, t.need = 0, 0, min(max(freshValues, 2*t.need), maxFreshValues)
		} else if t.need > 0 {
			if t.good++; t.good >= goodValues*t.need {
				t.good, t.need = 0, 0
			}
		}
		return !t.lost
	case c.plausible() && c.fresh():
		if t.fresh++; t.fresh >= t.need {
			t.lost = false
		}
	default:
		t.fresh = 0
	}
	return false
}

// Lost reports whether trust is lost.
func (t *Trust) Lost() bool { return t.lost }

// A change compares two values of a tensor.
type change struct {
	norm, last, diff float64 // squared norms of the newer value, the last one and their difference
	abs, lastAbs     float64 // sums of magnitudes
	n                int     // elements
}

func (c change) plausible() bool {
	const ratio = maxNormRatio * maxNormRatio
	return c.norm <= ratio*c.last && c.last <= ratio*c.norm && c.diff >= minChange*minChange*c.norm && !c.evener()
}

// evener reports whether the newer value looks like weights and the last one does not.
func (c change) evener() bool {
	// Each shape is the square of the mean magnitude over the root mean square.
	shape, lastShape := c.abs*c.abs/c.norm/float64(c.n), c.lastAbs*c.lastAbs/c.last/float64(c.n)
	return shape >= evenShape*evenShape && shape >= evenerShape*evenerShape*lastShape && c.norm >= evenerNorm*evenerNorm*c.last
}

func (c change) fresh() bool { return c.diff >= freshChange*freshChange*c.norm }

// compare compares block with the whole last value. It reports false if there is nothing to compare.
func compare(d DType, block, last []byte) (change, bool) {
	if !d.Valid() || !d.Float() || len(block) != len(last) || len(block)%d.Size() != 0 {
		return change{}, false
	}
	var c change
	if x, y := View(block), View(last); d == Float32 && x != nil && y != nil {
		c.add(x, y)
	} else {
		c = compareWide(d, block, last)
	}
	c.n = len(block) / d.Size()
	return c, c.known()
}

// known reports whether both values are finite and not zero.
func (c change) known() bool {
	sum := c.norm + c.last + c.diff
	return c.norm > 0 && c.last > 0 && !math.IsInf(sum, 0) && !math.IsNaN(sum)
}

// SquaredNorms returns the sum of the squares of x, and that of the first len(x) values of y, to about six digits.
func SquaredNorms(x, y []float32) (ofX, ofY float64) {
	var c change
	c.add(x, y[:len(x)])
	return c.norm, c.last
}

// pieceLen is the number of elements that are summed in float32. Rounding errors of such a sum stay far below the bounds.
const pieceLen = 512

// add adds the elements x of the newer value and y of the last one. It sums pieces in float32, which is several times as fast as
// float64, and sums a piece again in float64 if its squares leave float32's range.
func (c *change) add(x, y []float32) {
	for len(x) > 0 {
		n := min(len(x), pieceLen)
		if !c.addSums(sumsOf(x[:n], y[:n])) {
			c.addWide(x[:n], y[:n])
		}
		x, y = x[n:], y[n:]
	}
}

// addSums adds the sums of a piece. It reports false, and adds nothing, if they are not precise.
func (c *change) addSums(s sums) bool {
	norm, last := s[ofX], s[ofY]
	if !inRange(norm) || !inRange(last) {
		return false
	}
	c.norm += float64(norm)
	c.last += float64(last)
	c.abs += float64(s[ofMagnitude])
	c.lastAbs += float64(s[ofLastMagnitude])
	c.diff += max(0, float64(norm)+float64(last)-2*float64(s[ofProduct]))
	return true
}

// inRange reports whether a sum of squares is precise in float32.
func inRange(sum float32) bool { return sum > 1e-30 && sum < 1e37 }

// addWide is add in float64.
func (c *change) addWide(x, y []float32) {
	for i, v := range x {
		a, b := float64(v), float64(y[i])
		c.norm += float64(a * a)
		c.last += float64(b * b)
		c.abs += math.Abs(a)
		c.lastAbs += math.Abs(b)
		a -= b
		c.diff += float64(a * a)
	}
}

// compareWide compares values of the types other than Float32. Float64 is not rounded.
func compareWide(d DType, block, last []byte) change {
	var c change
	if d == Float64 {
		for ; len(block) >= 8; block, last = block[8:], last[8:] {
			a, b := math.Float64frombits(binary.LittleEndian.Uint64(block)), math.Float64frombits(binary.LittleEndian.Uint64(last))
			c.norm += float64(a * a)
			c.last += float64(b * b)
			c.abs += math.Abs(a)
			c.lastAbs += math.Abs(b)
			a -= b
			c.diff += float64(a * a)
		}
		return c
	}
	var x, y [256]float32
	for len(block) > 0 {
		n := min(len(x), len(block)/d.Size())
		size := n * d.Size()
		ToFloat32(x[:n], block[:size], d)
		ToFloat32(y[:n], last[:size], d)
		c.add(x[:n], y[:n])
		block, last = block[size:], last[size:]
	}
	return c
}
