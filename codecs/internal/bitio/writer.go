// Package bitio writes and reads bits in bytes: the first bit is the most significant of the first byte, and the last
// byte is filled up with zeros. So the hex digits of an encoding read as the codes do on paper.
package bitio

import "encoding/binary"

// A Writer appends bits to a slice of bytes. The zero Writer appends to nil.
type Writer struct {
	buf  []byte
	bits uint64 // the latest Write's end in its low bits, of which used are not in buf yet; above them anything
	used uint   // 0 to 64
}

// NewWriter returns a Writer that appends to dst, which is its own until Bytes.
func NewWriter(dst []byte) Writer { return Writer{buf: dst} }

// Write appends the low n bits of v, the most significant of them first. n is at most 64; the bits of v above must be 0.
func (w *Writer) Write(v uint64, n uint) {
	if free := 64 - w.used; n > free {
		w.spill(v, n, free)
		return
	}
	w.bits = w.bits<<n | v
	w.used += n
}

// spill is Write where v does not fit into what is free of w.bits.
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
