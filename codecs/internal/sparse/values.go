package sparse

import (
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/params"
	"github.com/gradproxy/gradproxy/tensor"
)

// formatNames are the element types in which values travel, by their names in a codec's text.
var formatNames = map[tensor.DType]string{tensor.Float32: "fp32", tensor.BFloat16: "bf16", tensor.Float16: "fp16"}

// Values is the parameter values: the element type in which values travel, Float32 by default.
func Values[Config any](field func(*Config) *tensor.DType) params.Param[Config] {
	return params.Named("values", formatNames, []string{"fp32", "bf16", "fp16"}, field)
}

// ErrNotFinite wraps codecs.ErrUnsuited: a value that would be sent is a NaN or infinity.
var ErrNotFinite = fmt.Errorf("%w: a value is a NaN or infinity, or would be sent as one", codecs.ErrUnsuited)

// AppendValues rounds p.Values to d, to its nearest finite value, and appends them to dst, little-endian. If one is
// not finite it answers ErrNotFinite.
func AppendValues(dst []byte, p *Picks, d tensor.DType) ([]byte, error) {
	if !absmax.Finite(p.Values) {
		return dst, ErrNotFinite
	}
	p.sums, p.rounded = append(p.sums[:0], p.Values...), d != tensor.Float32
	tensor.Round(p.Values, d)
	from := len(dst)
	dst = append(dst, make([]byte, len(p.Values)*d.Size())...)
	tensor.FromFloat32(dst[from:], p.Values, d)
	return dst, nil
}

// DecodeValues sets x to the values with which src begins at p's keys, which are less than len(x), and to 0
// elsewhere, and returns the rest of src. All values are finite.
func DecodeValues(x []float32, src []byte, d tensor.DType, p *Picks) (rest []byte, err error) {
	clear(x)
	return SetValues(x, src, d, p)
}

// SetValues is DecodeValues, but leaves the other values of x alone.
func SetValues(x []float32, src []byte, d tensor.DType, p *Picks) (rest []byte, err error) {
	size := len(p.Keys) * d.Size()
	if len(src) < size {
		return nil, fmt.Errorf("it ends %d bytes before its last value does", size-len(src))
	}
	p.Values = resize(p.Values, len(p.Keys))
	tensor.ToFloat32(p.Values, src[:size], d)
	if !absmax.Finite(p.Values) {
		return nil, errors.New("a value is not finite")
	}
	values := p.Values[:len(p.Keys)]
	for i, key := range p.Keys {
		x[key] = values[i]
	}
	return src[size:], nil
}
