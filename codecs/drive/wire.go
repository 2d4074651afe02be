package drive

import (
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/blockwise"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
)

func (c code) Append(dst []byte, x []float32, number uint64) ([]byte, error) {
	largest := absmax.Of(x)
	if largest-largest != 0 {
		return dst, blockwise.ErrNotFinite
	}
	r := rng.Of(uint64(c.Seed), number, x)
	seed := r.Uint32()
	d := dimension(len(x))
	rotated := scratch.Take(d)
	defer scratch.Put(rotated)
	y := *rotated
	clear(y[copy(y, x):])
	flip(y, seed)
	hadamard(y)
	l1 := norm1(y)
	scale := minError(l1, d)
	if c.Unbiased {
		scale = unbiased(norm2(x), l1)
	}
	if !(l1 <= math.MaxFloat64) || !(scale <= maxScale(d)) {
		return dst, blockwise.ErrTooLarge
	}
	dst = blockwise.AppendScalar(dst, scale)
	dst = binary.LittleEndian.AppendUint32(dst, seed)
	return appendSigns(dst, y), nil
}

func (c code) Read(x []float32, src []byte) ([]byte, error) {
	d := dimension(len(x))
	scale, src, err := blockwise.Scalar(src, "scale", maxScale(d))
	if err != nil {
		return nil, err
	}
	b, src, err := blockwise.Take(src, seedLen)
	if err != nil {
		return nil, err
	}
	signs, rest, err := blockwise.Take(src, signsLen(d))
	if err != nil {
		return nil, err
	}
	if d < 8 && signs[0]>>d != 0 {
		return nil, errSigns
	}
	y := x
	if d > len(x) {
		rotated := scratch.Take(d)
		defer scratch.Put(rotated)
		y = *rotated
	}
	readSigns(y, signs)
	hadamard(y) // H is its own inverse, but for d: R⁻¹ = DH/√d
	for i, v := range y[:len(x)] {
		x[i] = scale * v
	}
	flip(x, binary.LittleEndian.Uint32(b))
	return rest, nil
}
