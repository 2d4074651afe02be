package fastsgd

import (
	"encoding/binary"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
)

func (m *method) NewEncoder(n int) (codecs.ValueEncoder, error) { return coder{m, n}, nil }
func (m *method) NewDecoder(n int) (codecs.ValueDecoder, error) { return coder{m, n}, nil }

// A coder is both an encoder and a decoder: neither remembers anything.
type coder struct {
	*method
	n int
}

// Append implements codecs.ValueEncoder.
func (c coder) Append(dst []byte, src []float32) ([]byte, error) {
	c.check(len(src))
	begin := len(dst)
	p := c.pool.Get().(*[]uint64)
	defer c.pool.Put(p)
	for from := 0; from < c.n; from += c.block {
		to := min(from+c.block, c.n)
		var err error
		if dst, err = c.appendBlock(dst, p, src[from:to]); err != nil {
			return dst[:begin], fmt.Errorf("values %d to %d: %w", from, to-1, err)
		}
	}
	return dst, nil
}

func (c coder) appendBlock(dst []byte, kept *[]uint64, src []float32) (_ []byte, err error) {
	s := c.values.scales.Get().(*scale)
	defer c.values.scales.Put(s)
	var sum float64
	if sum, *kept, err = c.values.filter(s, (*kept)[:0], src); err != nil {
		return dst, err
	}
	dst = binary.AppendUvarint(dst, uint64(len(*kept)))
	dst = c.values.appendCodes(dst, s, sum, src, *kept)
	return c.keys.Append(dst, *kept), nil
}

// Decode implements codecs.ValueDecoder.
func (c coder) Decode(dst []float32, src []byte) error {
	c.check(len(dst))
	clear(dst)
	p := c.pool.Get().(*[]uint64)
	defer c.pool.Put(p)
	for from := 0; from < c.n; from += c.block {
		to := min(from+c.block, c.n)
		used, err := c.decodeBlock(dst[from:to], p, src)
		if err != nil {
			return fmt.Errorf("values %d to %d: %w", from, to-1, err)
		}
		src = src[used:]
	}
	if len(src) > 0 {
		return fmt.Errorf("%w: fastsgd: %d bytes follow its %d values", codecs.ErrCorrupt, len(src), c.n)
	}
	return nil
}

// decodeBlock sets the values of dst that were sent; all of dst must be zero before.
func (c coder) decodeBlock(dst []float32, kept *[]uint64, src []byte) (used int, err error) {
	d, used := binary.Uvarint(src)
	if used <= 0 || d > uint64(min(len(dst), 8*len(src))) { // a code and a key take a bit at least
		return 0, fmt.Errorf("%w: fastsgd: %d values are sent of %d, in %d bytes", codecs.ErrCorrupt, d, len(dst), len(src))
	}
	if uint64(cap(*kept)) < d {
		*kept = make([]uint64, d)
	}
	positions := (*kept)[:d]
	values := scratch.Take(int(d))
	defer scratch.Put(values)
	n, err := c.values.Decode(*values, src[used:])
	if err != nil {
		return 0, err
	}
	used += n
	if n, err = c.keys.Decode(positions, src[used:]); err != nil {
		return 0, err
	}
	if d > 0 && positions[d-1] >= uint64(len(dst)) {
		return 0, fmt.Errorf("%w: fastsgd: position %d of %d values", codecs.ErrCorrupt, positions[d-1], len(dst))
	}
	for i, at := range positions {
		dst[at] = (*values)[i]
	}
	return used + n, nil
}

func (c coder) check(n int) {
	if n != c.n {
		panic(fmt.Sprintf("fastsgd: %d values for a coder of %d", n, c.n))
	}
}
