package bench

import (
	"bytes"
	"math"

	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Size is the size of a tensor's encoding. Blocks that the codec finds unsuited count as they are.
type Size struct {
	EncodedBytes float64 `json:"encoded_bytes"` // of one step, on average
	Ratio        float64 `json:"ratio"`
	BitsPerValue float64 `json:"bits_per_value"`
}

// Error is how far decoded values are from the tensor's of the same step, over all steps; not finite ones are left out.
// With error feedback, the residual of a step comes in later ones.
type Error struct {
	NMSE        float64 `json:"nmse"`       // squared norm of the difference over that of the tensor
	Cosine      float64 `json:"cosine"`     // of the angle between both
	SignFlips   float64 `json:"sign_flips"` // part of the values that are not zero and came out with the other sign
	MaxAbsError float64 `json:"max_abs_error"`
}

// quality runs a codec through all steps of d, after warmup others. The first skip steps of d do not count.
func quality(c cutter, d Data, warmup, skip int) (Size, Error, error) {
	var raw, total int
	var size Size
	var sums deviation
	for _, t := range d.Tensors {
		n, err := c.through(t, warmup, skip, &sums)
		if err != nil {
			return Size{}, Error{}, err
		}
		total += n
		raw += len(t.Data) / t.Rows * (t.Rows - skip)
		size.EncodedBytes += float64(n) / float64(t.Rows-skip)
	}
	size.Ratio = float64(raw) / float64(total)
	size.BitsPerValue = 8 * float64(c.dtype.Size()) / size.Ratio
	return size, sums.result(), nil
}

// through runs a codec through all steps of t, adds to sums how the values of the steps from skip on came out, and
// returns the bytes that these steps took. warmup steps precede them: t's own, over and over, so that the last of them
// is t's last.
func (c cutter) through(t npy.Array, warmup, skip int, sums *deviation) (total int, err error) {
	blocks, err := c.cut(len(t.Row(0)))
	if err != nil {
		return 0, err
	}
	var encoded []byte
	for step := -warmup; step < t.Rows; step++ {
		src := t.Row((step%t.Rows + t.Rows) % t.Rows)
		dst := make([]byte, len(src))
		for i := range blocks {
			b := &blocks[i]
			out, form, err := b.encode(encoded[:0], src)
			if err != nil {
				return 0, err
			}
			encoded = out
			if step >= skip {
				total += len(out)
			}
			if err := b.decode(dst, out, form); err != nil {
				return 0, err
			}
		}
		if step >= skip {
			sums.add(t.DType, src, dst)
		}
	}
	return total, nil
}

// A deviation sums up how values x came out as y.
type deviation struct {
	xx, xy, yy, dd, largest float64
	signed, flips           int
	differ                  bool
}

func (v *deviation) add(d tensor.DType, src, dst []byte) {
	if !bytes.Equal(src, dst) {
		v.differ = true
	}
	if !d.Float() {
		return
	}
	n := len(src) / d.Size()
	before, after := make([]float32, n), make([]float32, n)
	tensor.ToFloat32(before, src, d)
	tensor.ToFloat32(after, dst, d)
	for i := range before {
		x, y := float64(before[i]), float64(after[i])
		if math.IsNaN(x-y) || math.IsInf(x-y, 0) || math.IsInf(x, 0) {
			continue
		}
		v.xx, v.xy, v.yy = v.xx+x*x, v.xy+x*y, v.yy+y*y
		v.dd += (x - y) * (x - y)
		v.largest = max(v.largest, math.Abs(x-y))
		if x != 0 {
			v.signed++
			if x*y < 0 {
				v.flips++
			}
		}
	}
}

func (v *deviation) result() Error {
	if !v.differ || v.xx == 0 {
		return Error{Cosine: 1, MaxAbsError: v.largest}
	}
	e := Error{NMSE: v.dd / v.xx, MaxAbsError: v.largest, SignFlips: float64(v.flips) / float64(v.signed)}
	if v.yy > 0 {
		e.Cosine = max(-1, min(1, v.xy/math.Sqrt(v.xx)/math.Sqrt(v.yy))) // which rounding exceeds
	}
	return e
}
