package sparse

import (
	"github.com/gradproxy/gradproxy/codecs/internal/params"
)

// defaultBlock is the number of values that methods look at as a whole by default: as many as most tensors have at
// most, 4 MiB of float32.
const defaultBlock = 1 << 20

// maxBlock is the maximum of values that a method may look at as a whole.
const maxBlock = 1 << 24

// MinFraction is the smallest fraction of values to send that a text may ask for: a value of the largest block.
const MinFraction = 1.0 / maxBlock

// Count is the number of values that a fraction k of n is, n >= 1: rounded to the nearest, one at least. Both ends
// compute the same number.
func Count(k float64, n int) int { return min(n, max(1, int(float64(k*float64(n))+0.5))) }

// Fraction is the parameter k: the fraction of values to send.
func Fraction[Config any](def float64, field func(*Config) *float64) params.Param[Config] {
	return params.Float("k", def, MinFraction, 1, field)
}

// BlockOf is the parameter block: how many values share an encoding.
func BlockOf[Config any](field func(*Config) *int) params.Param[Config] {
	return params.Int("block", defaultBlock, 1, maxBlock, field)
}

// MaxEncodedLen is the maximum of bytes that n values take in blocks of block values: longer encodings are unsuited.
func MaxEncodedLen(n, block int) int { return 4*n + (n+block-1)/block*header }

// header is the maximum of bytes that an encoded block may have besides 4 for each value.
const header = 16

// Block is how much a codec wants at once of a tensor of size bytes that has blocks of block values.
func Block(size, block int) int { return min(size, 4*block) }
