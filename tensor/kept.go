package tensor

import (
	"encoding/binary"
	"math"
)

// What is kept of a value, for the next to be compared with: of float32 the upper half of each element, which is its sign,
// exponent and seven bits (a bfloat16, rounded toward zero); of other types all. Elements are then off by less than 1 %,
// where bounds are of 20 % and more, but for those below 2^-126; and what was not finite still is not. A last value comes from
// memory that no cache holds, so half of it is half the time.

// KeptSize returns the bytes that are kept of n bytes of elements of type d.
func KeptSize(d DType, n int) int {
	if d == Float32 {
		return n / 2
	}
	return n
}

// Keep puts in kept what is kept of block: KeptSize(d, len(block)) bytes. block is read only.
func Keep(d DType, kept, block []byte) {
	if d == Float32 {
		eachPiece(block, kept, func(x []float32, kept []byte) { cut(kept, x) })
	} else {
		copy(kept, block)
	}
}

// compareKept is compare with a last value of which kept is what was kept. Then that of block takes its place, if it is of the
// same length.
func compareKept(d DType, block, kept []byte) (change, bool) {
	switch {
	case len(kept) != KeptSize(d, len(block)):
		return change{}, false
	case d != Float32:
		c, ok := compare(d, block, kept)
		copy(kept, block)
		return c, ok
	case len(block)%d.Size() != 0:
		return change{}, false
	}
	c := change{n: len(block) / d.Size()}
	eachPiece(block, kept, func(x []float32, kept []byte) {
		c.addKept(x, kept)
		cut(kept, x)
	})
	return c, c.known()
}

// keptPiece is the number of elements that are compared before they are kept, while a core's first cache holds them. Their sums
// in float32 are as precise as is needed: there are 16 of each, so the largest error is that of 128 additions.
const keptPiece = 2048

// eachPiece calls f with pieces of a block of Float32, and of what is kept of it.
func eachPiece(block, kept []byte, f func(x []float32, kept []byte)) {
	x := View(block)
	if x == nil {
		x = make([]float32, len(block)/4)
		ToFloat32(x, block, Float32)
	}
	for len(x) > 0 {
		n := min(len(x), keptPiece)
		f(x[:n], kept[:2*n])
		x, kept = x[n:], kept[2*n:]
	}
}

// addKept is add for a piece of which y has the upper halves of the last value.
func (c *change) addKept(x []float32, y []byte) {
	if !c.addSums(sumsOfCut(x, y)) {
		c.addWideKept(x, y)
	}
}

func (c *change) addWideKept(x []float32, y []byte) {
	var last [pieceLen]float32
	for len(x) > 0 {
		n := min(len(x), len(last))
		widenBrain(last[:n], y)
		c.addWide(x[:n], last[:n])
		x, y = x[n:], y[2*n:]
	}
}

// sumsOfCut is sumsOf for at most keptPiece values of which y has the upper halves. The sums are the same with and without a kernel.
func sumsOfCut(x []float32, y []byte) (s sums) {
	n := len(x) &^ (sumLanes - 1)
	if n > 0 && !s.cutTiles(x[:n], y[:2*n]) {
		s.plainCut(x[:n], y[:2*n])
	}
	var last [sumLanes]float32
	widenBrain(last[:len(x)-n], y[2*n:])
	s.rest(x[n:], last[:len(x)-n])
	return s
}

// plainCut is plain for at most keptPiece values of which y has the upper halves.
func (s *sums) plainCut(x []float32, y []byte) {
	var last [keptPiece]float32
	widenBrain(last[:len(x)], y)
	s.plain(x, last[:len(x)])
}

// cut sets dst to the upper halves of src.
func cut(dst []byte, src []float32) {
	n := cutTiles(dst, src)
	plainCut(dst[2*n:], src[n:])
}

// plainCut is cut in Go.
func plainCut(dst []byte, src []float32) {
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(math.Float32bits(x)>>16))
	}
}
