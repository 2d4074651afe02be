package qsgd

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/blockwise"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
	"github.com/gradproxy/gradproxy/codecs/internal/smallint"
)

// maxNorm leaves room for the rounding error of the highest level.
const maxNorm = math.MaxFloat32 / 2

func (c code) Len(n int) int {
	if c.Coding == Elias {
		return blockwise.ScalarLen + eliasLen(n, c.s)
	}
	return blockwise.ScalarLen + smallint.Len(c.Bits, n)
}

func (c code) Append(dst []byte, x []float32, number uint64) ([]byte, error) {
	norm := absmax.Of(x)
	if norm-norm != 0 {
		return dst, blockwise.ErrNotFinite
	}
	if c.Norm == L2 {
		norm = euclidean(x)
	}
	if norm > maxNorm {
		return dst, blockwise.ErrTooLarge
	}
	levels := scratch.TakeInt8(len(x))
	defer scratch.PutInt8(levels)
	r := rng.Of(uint64(c.Seed), number, x)
	quantize(*levels, x, norm, c.s, &r)
	dst = blockwise.AppendScalar(dst, norm)
	if c.Coding == Elias {
		return appendElias(dst, *levels), nil
	}
	return smallint.Append(dst, c.Bits, *levels), nil
}

func (c code) Read(x []float32, src []byte) ([]byte, error) {
	norm, src, err := blockwise.Scalar(src, "norm", maxNorm)
	if err != nil {
		return nil, err
	}
	levels := scratch.TakeInt8(len(x))
	defer scratch.PutInt8(levels)
	if c.Coding == Elias {
		src, err = readElias(*levels, src, c.s)
	} else {
		src, err = readFixed(*levels, src, c.Bits)
	}
	if err != nil {
		return nil, err
	}
	dequantize(x, *levels, norm, c.s)
	return src, nil
}

func readFixed(levels []int8, src []byte, bits int) (rest []byte, err error) {
	b, rest, err := blockwise.Take(src, smallint.Len(bits, len(levels)))
	if err == nil && !smallint.Read(levels, bits, b) {
		err = smallint.Err
	}
	return rest, err
}
