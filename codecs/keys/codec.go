package keys

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// New returns the lossless codec of integer elements that writes them with c.
func New(c Coding) codecs.Codec {
	return &codec{Coding: c, pool: sync.Pool{New: func() any { return new([]uint64) }}}
}

// Parse returns the Coding of a text: delta-binary, adaptive-prefix, bit-grain(l=3), rice, bitmap. The error wraps
// codecs.ErrText.
func Parse(a *codecs.Args) (Coding, error) {
	var c Coding
	switch a.Name {
	case "delta-binary":
		c = DeltaBinary{}
	case "adaptive-prefix":
		c = Adaptive{}
	case "bit-grain":
		c = BitGrain{L: a.Int("l", defaultL, 1, maxL)}
	case "rice":
		c = Rice{}
	case "bitmap":
		c = Bitmap{}
	default:
		return nil, fmt.Errorf("%w %q: no coding of keys is called so; write delta-binary, adaptive-prefix, bit-grain, rice or bitmap",
			codecs.ErrText, a.Name)
	}
	return c, a.Err()
}

// FromArgs makes the element codec of a text, which is that of its Coding.
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c, err := Parse(a)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

const blockBytes = 256 << 10 // a codec asks for so many bytes at once: each block costs a first key and a byte or so

type codec struct {
	Coding
	pool sync.Pool // *[]uint64
}

// MaxEncodedLen counts elements of the widest type. An encoding is always shorter than its block.
func (c *codec) MaxEncodedLen(n int) int { return 8 * n }

func (c *codec) Block(size int) int { return min(size, blockBytes) }

func (c *codec) Traits() codecs.Traits { return codecs.Traits{Lossless: true} }

func (c *codec) NewEncoder(d tensor.DType, n int) (codecs.Encoder, error) { return c.coder(d, n) }
func (c *codec) NewDecoder(d tensor.DType, n int) (codecs.Decoder, error) { return c.coder(d, n) }

func (c *codec) coder(d tensor.DType, n int) (*coder, error) {
	e := &coder{codec: c, n: n, size: d.Size()}
	switch d {
	case tensor.Uint32:
		e.maxKey = math.MaxUint32
	case tensor.Int32:
		e.maxKey = math.MaxInt32
	case tensor.Uint64:
		e.maxKey = math.MaxUint64
	case tensor.Int64:
		e.maxKey = math.MaxInt64
	default:
		return nil, fmt.Errorf("%w: %v takes int32, uint32, int64 and uint64, not %v", codecs.ErrUnsuited, c.Coding, d)
	}
	return e, nil
}

// A coder is both an Encoder and a Decoder: neither remembers anything.
type coder struct {
	*codec
	n, size int    // elements, and bytes of one
	maxKey  uint64 // the greatest key that an element can hold
}

// Append implements codecs.Encoder. It allocates only to extend dst.
func (c *coder) Append(dst, src []byte) ([]byte, error) {
	c.check(src)
	if c.n == 0 {
		return dst, c.errNoGain()
	}
	p := c.take()
	defer c.pool.Put(p)
	keys := *p
	if c.size == 4 {
		for i := range keys {
			keys[i] = uint64(binary.LittleEndian.Uint32(src[4*i:]))
		}
	} else {
		for i := range keys {
			keys[i] = binary.LittleEndian.Uint64(src[8*i:])
		}
	}
	if i := descent(keys); i >= 0 {
		return dst, fmt.Errorf("%w: %v: element %d is not greater than the one before", codecs.ErrUnsuited, c.Coding, i)
	}
	if keys[c.n-1] > c.maxKey {
		return dst, fmt.Errorf("%w: %v: an element is negative", codecs.ErrUnsuited, c.Coding)
	}
	first := keys[0]
	for i := range keys {
		keys[i] -= first
	}
	begin := len(dst)
	dst = binary.AppendUvarint(dst, first)
	dst = c.Coding.Append(dst, keys[1:])
	if len(dst)-begin >= len(src) {
		return dst[:begin], c.errNoGain()
	}
	return dst, nil
}

// Decode implements codecs.Decoder.
func (c *coder) Decode(dst, src []byte) error {
	c.check(dst)
	if c.n == 0 {
		return corrupt(c.Coding, "there are %d bytes for no element", len(src))
	}
	p := c.take()
	defer c.pool.Put(p)
	keys := *p
	first, n := binary.Uvarint(src)
	if n <= 0 {
		return corrupt(c.Coding, "its first element is no number of 64 bits")
	}
	used, err := c.Coding.Decode(keys[1:], src[n:])
	if err != nil {
		return err
	}
	if n += used; n < len(src) {
		return corrupt(c.Coding, "%d bytes follow its %d elements", len(src)-n, c.n)
	}
	keys[0] = 0
	if rest := keys[c.n-1]; first > c.maxKey || rest > c.maxKey-first || c.n > 1 && keys[1] == 0 {
		return corrupt(c.Coding, "an element is none of %d bytes, or the first two are equal", c.size)
	}
	if c.size == 4 {
		for i, k := range keys {
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(first+k))
		}
	} else {
		for i, k := range keys {
			binary.LittleEndian.PutUint64(dst[8*i:], first+k)
		}
	}
	return nil
}

func (c *coder) check(b []byte) {
	if len(b) != c.n*c.size {
		panic(fmt.Sprintf("keys: a block of %d bytes for a coder of %d elements of %d", len(b), c.n, c.size))
	}
}

// take returns room for the keys of a block, to be put back into the pool.
func (c *coder) take() *[]uint64 {
	p := c.pool.Get().(*[]uint64)
	if cap(*p) < c.n {
		*p = make([]uint64, c.n)
	}
	*p = (*p)[:c.n]
	return p
}

func (c *coder) errNoGain() error { return fmt.Errorf("%w: %v: no gain", codecs.ErrUnsuited, c.Coding) }
