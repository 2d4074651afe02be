package sparse

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
)

// defaultBlock is how many values methods look at as a whole, unless told otherwise: as many as most tensors have at
// most, 4 MiB of float32.
const defaultBlock = 1 << 20

// maxBlock is the most values that a method may look at as a whole.
const maxBlock = 1 << 24

// LeastFraction is the smallest fraction of values to send that a text may ask for: a value of the largest block.
const LeastFraction = 1.0 / maxBlock

// Count is how many values a fraction k of n is, n >= 1: rounded to the nearest, one at least. Both ends compute the
// same number.
func Count(k float64, n int) int { return min(n, max(1, int(float64(k*float64(n))+0.5))) }

// CheckFraction returns k, or def if it is 0. The error wraps codecs.ErrText.
func CheckFraction(codec string, k, def float64) (float64, error) {
	if k == 0 {
		return def, nil
	}
	if !(k > 0 && k <= 1) {
		return 0, fmt.Errorf("%w: %s: k is %v; write the fraction of values to send, more than 0 and at most 1", codecs.ErrText, codec, k)
	}
	return k, nil
}

// ParseBlock reads the parameter block of a codec's text.
func ParseBlock(a *codecs.Args) int { return a.Int("block", defaultBlock, 1, maxBlock) }

// BlockParam is that parameter as codecs.FormatText writes it.
func BlockParam(block int) codecs.Param {
	return codecs.Param{Name: "block", Value: block, Def: defaultBlock}
}

// CheckBlock returns block, or defaultBlock if it is 0. The error wraps codecs.ErrText.
func CheckBlock(codec string, block int) (int, error) {
	if block == 0 {
		return defaultBlock, nil
	}
	if block < 1 || block > maxBlock {
		return 0, fmt.Errorf("%w: %s: block is %d; write a number of values from 1 to %d", codecs.ErrText, codec, block, maxBlock)
	}
	return block, nil
}

// MaxEncodedLen is the most bytes that n values take in blocks of block values: what would take more is unsuited.
func MaxEncodedLen(n, block int) int { return 4*n + (n+block-1)/block*header }

// header is how many bytes an encoded block may have beyond those of its values.
const header = 16

// Block is how much a codec wants at once of a tensor of size bytes that has blocks of block values.
func Block(size, block int) int { return min(size, 4*block) }
