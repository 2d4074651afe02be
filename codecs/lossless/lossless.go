// Package lossless shrinks elements without changing a bit of them: numbers of every type, sorted keys, and bytes whose
// type is not known. It rests on a finding of ZipNN ([Hershcovitch et al.]) in the weights of trained networks: only
// the exponents are predictable. Elements are taken apart into planes, one for each of their bytes, exponents in a
// plane of their own, and each plane that is worth it is Huffman coded. Beyond that, zero elements are left out,
// ascending integers become differences, and all is decided anew for each chunk, from a sample of it.
//
// # State
//
// None: every encoding can be decoded by itself.
//
// # Wire
//
// Numbers are little-endian; u24 has three bytes. A block is cut into chunks of 128 KiB (the last one may be shorter),
// and its encoding is theirs, one after another. Each begins with its form:
//
//	bits 0-3  0 stored, 1 repeat, 2 bytes, 3 integer16, 4 integer32, 5 integer64,
//	          6 float16 (bfloat16 too), 7 float32, 8 float32 in four planes, 9 float64
//	bit 4     zero elements are left out; bit 5: elements are differences; bits 6-7: 0
//
//	stored    the chunk's bytes
//	repeat    8 bytes, which the chunk repeats, to its last byte
//	others    [first] [map] planes rest
//
// first, with bit 5 (integer32 and integer64): the first element; every element stands for its difference to the one
// before, modulo 2^width, the first for 0. map, with bit 4: which elements are not zero, as a byte and
//
//	0  a coded plane of one bit an element, from bit 0 of the first byte on, 1 if it is not zero
//	1  u24 bytes that follow: numbers of elements, in turn not zero and zero, as unsigned LEB128, from 0 on the first
//	   only, until all are counted
//
// Elements that are left are cut into groups of eight; planes hold the groups, rest the elements and bytes that make no
// whole group. A float first exchanges its parts: of float64, the upper four bits move below the eight bits after them;
// of the other floats, the sign does. Then elements are halved: every two 64-bit words x, y of 2h-bit lanes give one
// word of the plane of lower halves and one of the plane of upper halves, where the mask m has the lower halves,
//
//	low  = x & m | (y & m) << h
//	high = (x >> h) & m | y &^ m
//
// and each plane is halved again, until its lanes are bytes; the plane of a float32's lower halves only in form 8. So
// all planes have one byte an element but the first of form 7, which has two. They are in order from the lowest: a byte
// in which bit i is 1 if plane i is coded, then the planes that are not, as they are, then the coded ones: a byte and
//
//	0  the plane as it is
//	1  a byte, which it repeats
//	2  u24 bytes that follow: a Huffman tree and, if the plane has under 1 KiB, one stream, else four, as in section
//	   4.2 of [RFC 8878]
//	3  exponents in four bits: base (a byte, at most 241), u24 escapes, from every 16 bytes of the plane (the last may
//	   be 8) 8 bytes, with the first 8 in the lower halves, where v stands for base+v and 15 for an escape, and
//	   the escapes: the bytes themselves, in the order of the plane
//
// # Bounds
//
// An encoding is at least 1/64 shorter than its block, or Append answers ErrUnsuited; so nothing ever grows. Memory is
// a few chunks for each Append or Decode that runs, and none between. Dense gradients and weights have about 3 bits of
// exponent a value and random mantissas, which leaves 1.18 to 1.20 on float32 and 1.43 to 1.50 on bfloat16 to any
// method that takes values one by one; zeros, and mantissas that are not random, give more.
//
// # Unsuited
//
// Blocks in which no part gets shorter (encrypted or compressed bytes, random integers), and blocks of a few elements.
//
// [Hershcovitch et al.]: https://arxiv.org/abs/2411.05239
//
// [RFC 8878]: https://www.rfc-editor.org/rfc/rfc8878#section-4.2
package lossless

import (
	"fmt"
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Level chooses between time and bytes. Every Decoder reads the encodings of all levels.
type Level string

const (
	Balanced Level = "balanced" // exponents Huffman coded
	Fast     Level = "fast"     // exponents of dense floats in four bits each, other planes only if they are very short
)

// Config chooses among the ways of coding. The zero Config is Balanced.
type Config struct {
	Level Level // "": Balanced
}

// New returns the codec, or an error that wraps codecs.ErrText if the configuration names no level.
func New(c Config) (codecs.Codec, error) {
	switch c.Level {
	case "":
		c.Level = Balanced
	case Balanced, Fast:
	default:
		return nil, fmt.Errorf("%w: lossless: level is %s; write %s or %s", codecs.ErrText, c.Level, Balanced, Fast)
	}
	return &codec{config: c, pool: sync.Pool{New: func() any { return new(scratch) }}}, nil
}

// FromArgs makes the codec of a text: lossless, lossless(level=fast).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c := Config{Level: Level(a.Choice("level", string(Balanced), string(Fast)))}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(c)
}

// blockBytes is the size of the blocks that a codec asks for: one chunk, so that the first is under way while the
// others arrive.
const blockBytes = chunkBytes

type codec struct {
	config Config
	pool   sync.Pool // *scratch: encoders are many (one a block of each tensor), but few run at a time
}

func (c *codec) String() string {
	return codecs.FormatText("lossless", codecs.Param{Name: "level", Value: c.config.Level, Def: Balanced})
}

// MaxEncodedLen counts elements of the widest type. An encoding is always shorter than its block.
func (c *codec) MaxEncodedLen(n int) int { return 8 * n }

func (c *codec) Block(size int) int { return min(size, blockBytes) }

func (c *codec) Traits() codecs.Traits { return codecs.Traits{Lossless: true} }

func (c *codec) NewEncoder(d tensor.DType, n int) (codecs.Encoder, error) { return c.coder(d, n) }
func (c *codec) NewDecoder(d tensor.DType, n int) (codecs.Decoder, error) { return c.coder(d, n) }

func (c *codec) coder(d tensor.DType, n int) (*coder, error) {
	if !d.Valid() || n < 0 {
		return nil, fmt.Errorf("%w: lossless: %d elements of dtype %v", codecs.ErrUnsuited, n, d)
	}
	return &coder{c, d, n * d.Size()}, nil
}

// A coder is both an Encoder and a Decoder: neither remembers anything.
type coder struct {
	*codec
	dtype tensor.DType
	size  int // bytes in the block
}

// errNoGain is made once: it is the answer to every block of a tensor that does not compress.
var errNoGain = fmt.Errorf("%w: lossless: no gain", codecs.ErrUnsuited)

// Append implements codecs.Encoder. It allocates only to extend dst: room for the block and a few bytes more is enough.
func (c *coder) Append(dst, src []byte) ([]byte, error) {
	c.check(src)
	s := c.pool.Get().(*scratch)
	defer c.pool.Put(s)
	s.level = c.config.Level

	begin := len(dst)
	stored := 0 // where the part of src begins that no chunk has coded: it waits, so that a block without gain costs no copy
	for at := 0; at < len(src); at += chunkBytes {
		chunk := src[at:min(len(src), at+chunkBytes)]
		p, ok := s.plan(chunk, c.dtype)
		if !ok {
			continue
		}
		dst = appendStored(dst, src[stored:at])
		stored = at
		if next, ok := s.appendChunk(dst, &p, len(chunk)); ok {
			dst, stored = next, at+len(chunk)
		}
	}
	if len(dst) == begin {
		return dst, errNoGain
	}
	dst = appendStored(dst, src[stored:])
	if len(dst)-begin > len(src)-len(src)/64 {
		return dst[:begin], errNoGain
	}
	return dst, nil
}

// Decode implements codecs.Decoder.
func (c *coder) Decode(dst, src []byte) error {
	c.check(dst)
	s := c.pool.Get().(*scratch)
	defer c.pool.Put(s)
	r := reader{b: src}
	for at := 0; at < len(dst); at += chunkBytes {
		chunk := dst[at:min(len(dst), at+chunkBytes)]
		if s.readChunk(chunk, &r); r.err != nil {
			return fmt.Errorf("%w: lossless: chunk at byte %d of %d: %w", codecs.ErrCorrupt, at, len(dst), r.err)
		}
	}
	if len(r.b) > 0 {
		return fmt.Errorf("%w: lossless: %d bytes after the last chunk", codecs.ErrCorrupt, len(r.b))
	}
	return nil
}

func (c *coder) check(b []byte) {
	if len(b) != c.size {
		panic(fmt.Sprintf("lossless: a block of %d bytes for a coder of %d", len(b), c.size))
	}
}
