package tensor

import (
	"encoding/binary"
	"math"
)

// The content check keeps the last value of each block. Of float32 it keeps the upper half of each element: sign,
// exponent and seven bits of the mantissa (a bfloat16, rounded toward zero). Of other types it keeps all. A kept
// element is off by less than 1 %, unless it is below 2^-126, and the bounds of the check are 20 % and more. An element
// that is not finite is still not finite when kept. The last value comes from memory and not from a cache, so that
// reading half of it takes half the time.

// KeptSize returns the number of bytes that Keep keeps of n bytes of elements of type d.
func KeptSize(d DType, n int) int {
	if d == Float32 {
		return n / 2
	}
	return n
}

// Keep fills kept, which must have KeptSize(d, len(block)) bytes, from block. block is read only.
func Keep(d DType, kept, block []byte) {
	if d == Float32 {
		eachPiece(block, kept, func(x []float32, kept []byte) { cut(kept, x) })
	} else {
		copy(kept, block)
	}
}

// compareKept compares block with the last value, whose kept bytes are in kept, and then keeps block in kept. If kept
// has the wrong length there is nothing to compare, and kept stays as it is.
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

// keptPiece is the number of elements that are compared and then kept at a time, so that both passes find them in a
// core's first cache. Sums of so many elements in float32 are precise enough: each is made of 16 sums, and so has the
// rounding error of 128 additions.
const keptPiece = 2048

// eachPiece calls f with the pieces of a Float32 block and the kept bytes of each.
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

// addKept is add for a piece; y holds the upper halves of the last value's elements.
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

// sumsOfCut is sumsOf for at most keptPiece values, where y holds upper halves. The sums are the same with and without
// a kernel.
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

// plainCut is plain for at most keptPiece values, where y holds upper halves.
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
