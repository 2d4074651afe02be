package tensor

import (
	"encoding/binary"
	"math"
)

// A change compares two values of a tensor.
type change struct {
	norm, last, diff float64 // squared norms of the newer value, the last one and their difference
	abs, lastAbs     float64 // sums of magnitudes
	n                int     // elements
}

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

// cancels is the part of the squared norms of two values that the squared norm of their sum must have to be made of
// sums in float32.
const cancels = 1.0 / 64

// SumNorms returns the sum of the squares of x, and that of x and the first len(x) values of y added, to about four
// digits.
func SumNorms(x, y []float32) (norm, ofSum float64) {
	y = y[:len(x)]
	for len(x) > 0 {
		n := min(len(x), pieceLen)
		s := sumsOf(x[:n], y[:n])
		a, b := float64(s[ofX]), float64(s[ofY])
		sum := a + b + 2*float64(s[ofProduct])
		if !inRange(s[ofX]) || !inRange(s[ofY]) || sum < cancels*(a+b) {
			a, sum = wideSumNorms(x[:n], y[:n])
		}
		norm += a
		ofSum += sum
		x, y = x[n:], y[n:]
	}
	return norm, ofSum
}

// wideSumNorms is SumNorms in float64.
func wideSumNorms(x, y []float32) (norm, ofSum float64) {
	for i, v := range x {
		a := float64(v)
		sum := a + float64(y[i])
		norm += float64(a * a)
		ofSum += float64(sum * sum)
	}
	return norm, ofSum
}

// pieceLen is the number of elements that are summed in float32. Rounding errors of such a sum stay far below the
// bounds.
const pieceLen = 512

// add adds the elements x of the newer value and y of the last one. It sums pieces in float32, which is several times
// as fast as float64, and sums a piece again in float64 if its squares leave float32's range.
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

// sumsOf returns the sums of x and the first len(x) values of y. They are the same with and without a kernel.
func sumsOf(x, y []float32) (s sums) {
	n := len(x) &^ (sumLanes - 1)
	y = y[:len(x)]
	if n > 0 && !s.tiles(x[:n], y[:n]) {
		s.plain(x[:n], y[:n])
	}
	s.rest(x[n:], y[n:])
	return s
}
