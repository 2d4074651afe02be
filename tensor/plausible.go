package tensor

import (
	"encoding/binary"
	"math"
)

// Bounds on how the next value of a sum of gradients differs from the last. Measured on DistributedDataParallel with
// batches from 64 to nearly the whole set of data, changes were 0.23 to 2.5 of the value's norm; those of averaged weights,
// the other content of such all-reduces, 0.03 to 0.13 after five local steps. The first weights after gradients, in the same
// place, may have a like norm; but it is larger, and where it is not much so the gradients are spiky, as those of inputs that are mostly
// zero: the mean magnitude of weights is 0.8 to 0.87 of their root mean square, as that of normal and of uniform values, and
// that of such gradients 0.4. Sums of gradients that have lost detail are spikier still, and change in that from one to the next.
const (
	maxNormRatio   = 4.0     // between the two values' norms, either way
	evenShape      = 0.75    // mean magnitude over root mean square from which a value looks like weights,
	evenerShape    = 1.5     // if that is so many times the last value's
	evenerNorm     = 1.5     // and the norm as well
	minChange      = 0.2     // norm of the difference over the norm of the newer value
	freshChange    = 1.0     // from which a change is that of a fresh random value
	freshValues    = 3       // values in a row with such a change that win trust back
	maxFreshValues = 3 << 10 // of them, after many losses
	goodValues     = 16      // for each of them so many values that pass make good for a loss
)

// Plausible reports whether block looks like the next value of a sum of gradients whose last value was last: the norms
// are within a factor of 4, and neither is the difference small, as that of weights is, nor are the magnitudes suddenly as
// even as those of weights. It is the check just before lossy
// coding, on facts that the parser could not have at the block's first byte; it refuses, and never proves. Blocks of
// different lengths, of no float type, with NaN or infinity, or without any element that is not zero are refused. Both
// slices are read only.
func Plausible(d DType, block, last []byte) bool {
	c, ok := compare(d, block, last)
	return ok && c.plausible()
}

// Trust says block by block of one tensor whether it may be coded with loss. The zero Trust trusts; one value that is not
// Plausible ends that, until three values in a row that are Plausible differ from the ones before them by their own norm or
// more; six after the second such loss, twelve after the third, up to 3072: what alternates between gradients and something
// else soon travels as it is. Sixteen times as many values that pass are good for that.
type Trust struct {
	lost  bool
	fresh uint16 // values in a row
	need  uint16 // of them, to win trust back; doubles with each loss
	good  uint16 // values that have passed since
}

// Check reports whether block may be coded with loss, last being the value before it. Without anything to compare (last
// is nil or of another length, or one of them is zero or not finite) it may not, and trust stays as it is.
func (t *Trust) Check(d DType, block, last []byte) bool { return t.judge(compare(d, block, last)) }

// CheckKept is Check where kept has what Keep kept of the value before, and has it keep block in its place: unless that is of
// another length, whatever comes of the comparison. block is read only.
func (t *Trust) CheckKept(d DType, block, kept []byte) bool {
	return t.judge(compareKept(d, block, kept))
}

// judge is Check once c is what there is to compare, if there is: ok.
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

// A change compares two values of a tensor by the squares of their norms.
type change struct {
	norm, last, diff float64 // squares
	abs, lastAbs     float64 // sums of magnitudes
	n                int     // elements
}

func (c change) plausible() bool {
	const ratio = maxNormRatio * maxNormRatio
	return c.norm <= ratio*c.last && c.last <= ratio*c.norm && c.diff >= minChange*minChange*c.norm && !c.evener()
}

// evener reports whether the newer value looks like weights, and the last did not.
func (c change) evener() bool {
	// The squares of mean magnitude over root mean square.
	shape, lastShape := c.abs*c.abs/c.norm/float64(c.n), c.lastAbs*c.lastAbs/c.last/float64(c.n)
	return shape >= evenShape*evenShape && shape >= evenerShape*evenerShape*lastShape && c.norm >= evenerNorm*evenerNorm*c.last
}

func (c change) fresh() bool { return c.diff >= freshChange*freshChange*c.norm }

// compare reports false where there is nothing to compare.
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

// known reports whether two values were there, finite ones.
func (c change) known() bool {
	sum := c.norm + c.last + c.diff
	return c.norm > 0 && c.last > 0 && !math.IsInf(sum, 0) && !math.IsNaN(sum)
}

// SquaredNorms returns the sums of the squares of x and of as many values of y, to about six digits.
func SquaredNorms(x, y []float32) (ofX, ofY float64) {
	var c change
	c.add(x, y[:len(x)])
	return c.norm, c.last
}

// pieceLen is the number of elements summed up in float32, whose rounding errors then stay far below the bounds.
const pieceLen = 512

// add adds the elements x and those of the last value, y. It sums pieces in float32, which is several times as fast, and
// again in float64 where the squares leave float32's range.
func (c *change) add(x, y []float32) {
	for len(x) > 0 {
		n := min(len(x), pieceLen)
		if !c.addSums(sumsOf(x[:n], y[:n])) {
			c.addWide(x[:n], y[:n])
		}
		x, y = x[n:], y[n:]
	}
}

// addSums adds those of a piece; false: they are not precise.
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

// compareWide converts the other types, and Float64 without rounding.
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
