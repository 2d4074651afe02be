// Package bitio writes and reads bits in bytes: the first bit is the most significant of the first byte, and the last
// byte is filled up with zeros. So the hex digits of an encoding read as the codes do on paper.
package bitio

import "encoding/binary"

// A Writer appends bits to a slice of bytes. The zero Writer appends to nil.
type Writer struct {
	buf  []byte
	bits uint64 // the latest Write's end in its low bits; used of these bits are not in buf yet; above them anything
	used uint   // 0 to 64
}

// NewWriter returns a Writer that appends to dst, which is its own until Bytes.
func NewWriter(dst []byte) Writer { return Writer{buf: dst} }

// Write appends the low n bits of v, the most significant of them first. n is at most 64; the bits of v above must
// be 0.
func (w *Writer) Write(v uint64, n uint) {
	if free := 64 - w.used; n > free {
		w.spill(v, n, free)
		return
	}
	w.bits = w.bits<<n | v
	w.used += n
}

// spill is Write where v does not fit into the free bits of w.bits.
func (w *Writer) spill(v uint64, n, free uint) {
	left := n - free
	w.buf = binary.BigEndian.AppendUint64(w.buf, w.bits<<free|v>>left)
	w.bits, w.used = v, left
}

// Bytes appends zeros to the end of a byte and returns the slice with all that was written. The Writer may go on, from
// that byte's end.
func (w *Writer) Bytes() []byte {
	for w.used > 8 {
		w.used -= 8
		w.buf = append(w.buf, byte(w.bits>>w.used))
	}
	if w.used > 0 {
		w.buf = append(w.buf, byte(w.bits<<(8-w.used)))
		w.used = 0
	}
	return w.buf
}

// Put writes the low n bits of v, of 1 to 64, at bit at of buf, and returns where they end. The bits above in v must be
// 0, and the bits of buf from at on to the end of its 8 bytes, counted from the first, as well. Put writes up to 8
// bytes more: buf must have room for the 8 bytes that at is in and the 8 after them.
func Put(buf []byte, at uint, v uint64, n uint) uint {
	v <<= (64 - n) & 63
	here := buf[at>>6<<3:][:16]
	binary.BigEndian.PutUint64(here, binary.BigEndian.Uint64(here)|v>>(at&63))
	binary.BigEndian.PutUint64(here[8:], v<<1<<(^at&63))
	return at + n
}
