// Package sparse has the common parts of methods that send a few values of a block: the others are delivered as 0. A
// method says which values of a block travel and how, as a [Coder]; this package makes encoders and decoders of it
// that go block by block and keep error feedback to one pass, and has the wire form that most of them use
// (AppendPairs).
package sparse

import (
	"fmt"
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
)

// A Coder encodes single blocks. It keeps nothing between calls.
type Coder interface {
	fmt.Stringer
	Traits() codecs.Traits // of the codec that New makes

	// AppendBlock appends the encoding of x to dst, and sets p's keys and values to the delivered ones: positions in x,
	// each once, in any order. step counts the encodings before this one. The error wraps codecs.ErrUnsuited; dst may
	// have grown nevertheless.
	AppendBlock(dst []byte, x []float32, step uint64, p *Picks) ([]byte, error)

	// DecodeBlock sets x from the encoding with which src begins, and returns the rest of src. It takes no more
	// memory than x does. Its error names the fault of src; the caller adds the place.
	DecodeBlock(x []float32, src []byte, p *Picks) (rest []byte, err error)
}

// A SumCoder is a Coder that takes the sums of error feedback as package magnitude makes them.
type SumCoder interface {
	Coder

	// AppendValues is AppendBlock of v. If v has a residual, it is afterwards 0 at p's keys and the sum elsewhere, and
	// v.Old is the former residual, also if there is an error. It ends with one of this package's functions that append
	// p's values.
	AppendValues(dst []byte, v magnitude.Values, step uint64, p *Picks) ([]byte, error)
}

// Picks are the values of a block that are sent, and scratch memory for the Coder that picks them.
type Picks struct {
	Keys   []uint32  // positions in the block
	Values []float32 // of the same length: the values delivered there, in float32

	// Room, which is anything at first.
	Sample []float32 // for package magnitude
	More   []uint32
	Flags  []bool
	Words  []uint32
	Bytes  []byte

	sums    []float32 // Values before they were rounded
	rounded bool      // Values may have been
}

var pool = sync.Pool{New: func() any { return new(Picks) }} // coders are many, but few run at a time

// New returns the codec of c's blocks of block values; the last block of a tensor has the values that are left.
func New(c Coder, block int) codecs.Codec { return codecs.Values(method{c, block}) }

type method struct {
	Coder
	block int
}

func (m method) MaxEncodedLen(n int) int { return MaxEncodedLen(n, m.block) }
func (m method) Block(size int) int      { return Block(size, m.block) }

func (m method) NewEncoder(n int) (codecs.ValueEncoder, error) {
	return NewEncoder(m.Coder, n, m.block), nil
}

func (m method) NewDecoder(n int) (codecs.ValueDecoder, error) {
	return NewDecoder(m.Coder, n, m.block), nil
}

// NewEncoder returns the encoder of n values in blocks of block. It implements codecs.Fused.
func NewEncoder(c Coder, n, block int) codecs.ValueEncoder { return &encoder{c, n, block, 0} }

// NewDecoder returns the decoder of n values in blocks of block.
func NewDecoder(c Coder, n, block int) codecs.ValueDecoder { return decoder{c, n, block} }

type encoder struct {
	Coder
	n, block int
	step     uint64 // encodings so far
}

func (e *encoder) Append(dst []byte, src []float32) ([]byte, error) {
	return e.append(dst, magnitude.Values{X: src}, nil)
}

// append encodes v, which may be sums only for a SumCoder, and calls sent, if it is not nil, with the delivered values
// of each block.
func (e *encoder) append(dst []byte, v magnitude.Values, sent func(from int, p *Picks)) ([]byte, error) {
	if v.Len() != e.n {
		panic(fmt.Sprintf("sparse: %d values for an encoder of %d", v.Len(), e.n))
	}
	p := pool.Get().(*Picks)
	defer pool.Put(p)
	out := dst
	for from := 0; from < e.n; from += e.block {
		part := v.Slice(from, min(from+e.block, e.n))
		n, begin := part.Len(), len(out)
		var err error
		if part.Residual != nil {
			out, err = e.Coder.(SumCoder).AppendValues(out, part, e.step, p)
		} else {
			out, err = e.AppendBlock(out, part.X, e.step, p)
		}
		if err == nil && len(out)-begin > MaxEncodedLen(n, e.block) {
			err = fmt.Errorf("%w: %d of %d values are sent, in %d bytes", codecs.ErrUnsuited, len(p.Keys), n, len(out)-begin)
		}
		if err != nil {
			return dst, fmt.Errorf("%v: values %d to %d: %w", e.Coder, from, from+n-1, err)
		}
		if sent != nil {
			sent(from, p)
		}
	}
	e.step++
	return out, nil
}

type decoder struct {
	Coder
	n, block int
}

func (d decoder) Decode(dst []float32, src []byte) error {
	if len(dst) != d.n {
		panic(fmt.Sprintf("sparse: %d values for a decoder of %d", len(dst), d.n))
	}
	p := pool.Get().(*Picks)
	defer pool.Put(p)
	for from := 0; from < d.n; from += d.block {
		x := dst[from:min(from+d.block, d.n)]
		var err error
		if src, err = d.DecodeBlock(x, src, p); err != nil {
			return fmt.Errorf("%w: %v: values %d to %d: %w", codecs.ErrCorrupt, d.Coder, from, from+len(x)-1, err)
		}
	}
	if len(src) > 0 {
		return fmt.Errorf("%w: %v: %d bytes follow the values", codecs.ErrCorrupt, d.Coder, len(src))
	}
	return nil
}
