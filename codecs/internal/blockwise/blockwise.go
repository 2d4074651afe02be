// Package blockwise makes a codec of values from a code for one block of values. Quantizers with a scale for each block
// use it.
package blockwise

import (
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
)

// A Code turns one block of values into bytes and back. It is immutable and safe for concurrent use.
type Code interface {
	String() string // the codec's text
	Len(n int) int  // maximum of bytes that n values take; it must not fall as n grows

	Traits() codecs.Traits // of the codec that New makes

	// Append appends the code of x, which has one value at least. An encoder gives each block another number, for codes
	// that draw at random. An error names the reason why the block is unsuited ("a value is NaN"); the result then does
	// not matter.
	Append(dst []byte, x []float32, number uint64) ([]byte, error)

	// Read sets x from the code with which src begins and returns the rest of src. An error names the fault of src.
	Read(x []float32, src []byte) (rest []byte, err error)
}

// New returns the codec that encodes each block of so many values, and a shorter last one, by itself.
func New(block int, c Code) codecs.Codec { return codecs.Values(method{c, block}) }

type method struct {
	Code
	block int
}

func (m method) MaxEncodedLen(n int) int {
	total := n / m.block * m.Len(m.block)
	if rest := n % m.block; rest > 0 {
		total += m.Len(rest)
	}
	return total
}

// wantBytes is the size of the blocks that a codec asks for: large enough that frames cost nothing, and within a core's
// cache.
const wantBytes = 256 << 10

// Block wants whole blocks of values: their length in elements of any size divides it.
func (m method) Block(size int) int {
	const widest = 8 // bytes of an element
	return min(size, widest*m.block*max(1, wantBytes/(widest*m.block)))
}

func (m method) NewEncoder(n int) (codecs.ValueEncoder, error) { return &encoder{method: m, n: n}, nil }
func (m method) NewDecoder(n int) (codecs.ValueDecoder, error) { return decoder{m, n}, nil }

type encoder struct {
	method
	n      int
	number uint64 // of the next block
}

func (e *encoder) Append(dst []byte, src []float32) ([]byte, error) {
	if len(src) != e.n {
		panic(fmt.Sprintf("%v: %d values for an encoder of %d", e, len(src), e.n))
	}
	out, number := slices.Grow(dst, e.MaxEncodedLen(e.n)), e.number
	for from := 0; from < e.n; from += e.block {
		to := min(from+e.block, e.n)
		var err error
		if out, err = e.Code.Append(out, src[from:to], number); err != nil {
			return dst, fmt.Errorf("%w: %v: values %d to %d: %w", codecs.ErrUnsuited, e, from, to-1, err)
		}
		number++
	}
	e.number = number
	return out, nil
}

type decoder struct {
	method
	n int
}

func (d decoder) Decode(dst []float32, src []byte) error {
	if len(dst) != d.n {
		panic(fmt.Sprintf("%v: %d values for a decoder of %d", d, len(dst), d.n))
	}
	for from := 0; from < d.n; from += d.block {
		to := min(from+d.block, d.n)
		var err error
		if src, err = d.Read(dst[from:to], src); err != nil {
			return fmt.Errorf("%w: %v: values %d to %d: %w", codecs.ErrCorrupt, d, from, to-1, err)
		}
	}
	if len(src) > 0 {
		return fmt.Errorf("%w: %v: %d bytes follow its %d values", codecs.ErrCorrupt, d, len(src), d.n)
	}
	return nil
}
