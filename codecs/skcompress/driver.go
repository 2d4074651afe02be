package skcompress

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/arith"
)

// A Driver is what stands between the workers (section 7.1): it decodes the gradients that they have encoded, sums
// them, and encodes the sum, which all of them then receive.
type Driver struct {
	dec      codecs.ValueDecoder
	enc      codecs.ValueEncoder
	sum, one []float32
}

// NewDriver returns a Driver of gradients of n values, which the codec of c has encoded. The error wraps codecs.ErrText if a
// parameter is out of its bounds.
func NewDriver(c Config, n int) (*Driver, error) {
	m, err := newMethod(c)
	if err != nil {
		return nil, err
	}
	return &Driver{decoder{m, n}, encoder{m, n}, make([]float32, n), make([]float32, n)}, nil
}

// Add decodes a worker's gradient and adds it to the sum. If the error wraps codecs.ErrCorrupt, the sum is as before.
func (d *Driver) Add(encoding []byte) error {
	if err := d.dec.Decode(d.one, encoding); err != nil {
		return err
	}
	arith.Add(d.sum, d.sum, d.one)
	return nil
}

// Sum returns what was added since the last Append. It is d's own.
func (d *Driver) Sum() []float32 { return d.sum }

// Append appends the encoding of the sum to dst, and sets the sum to 0. If the error wraps codecs.ErrUnsuited, dst and the sum
// are as before: then the sum has to travel as it is.
func (d *Driver) Append(dst []byte) ([]byte, error) {
	dst, err := d.enc.Append(dst, d.sum)
	if err != nil {
		return dst, fmt.Errorf("the sum: %w", err)
	}
	clear(d.sum)
	return dst, nil
}
