// Package cursor reads little-endian fields out of bytes that nobody vouches for. A read past the end yields zero and
// marks the Cursor as failed, so that a parser reads all of a header and asks once.
package cursor

import "encoding/binary"

// A Cursor reads its bytes from the front. The zero Cursor has none. It shares, and does not change, the memory of the
// slice that it was made of.
type Cursor struct {
	rest   []byte
	failed bool
}

// New returns a Cursor over b.
func New(b []byte) *Cursor { return &Cursor{rest: b} }

// OK reports whether every read so far was within the bytes.
func (c *Cursor) OK() bool { return !c.failed }

// Bytes reads n bytes, which stay the property of whoever made the Cursor; nil if there are fewer, or n is negative.
func (c *Cursor) Bytes(n int) []byte {
	if n < 0 || n > len(c.rest) {
		c.rest, c.failed = nil, true
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

// Uint64 reads 8 bytes, little-endian.
func (c *Cursor) Uint64() uint64 {
	if b := c.Bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
