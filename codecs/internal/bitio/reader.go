package bitio

import (
	"encoding/binary"
	"math/bits"
)

// A Reader reads the bits of a Writer. Beyond the end of its bytes it reads zeros, and Close says so: a loop over a
// bounded number of codes need not check after each.
type Reader struct {
	src []byte
	at  uint // bits
}

// NewReader returns a Reader of src, which it does not modify.
func NewReader(src []byte) Reader { return Reader{src: src} }

// PeekMax is the maximum of bits that Peek can return.
const PeekMax = 57

// Peek returns the next n bits, at most PeekMax, without reading them.
func (r *Reader) Peek(n uint) uint64 { return r.next() >> (64 - n) }

// Skip reads n bits. It may go beyond the end, but not by 2^60 bits.
func (r *Reader) Skip(n uint) { r.at += n }

// At returns the number of bits that have been read.
func (r *Reader) At() uint { return r.at }

// Read returns the next n bits, at most 64, in the low bits of the result.
func (r *Reader) Read(n uint) uint64 {
	if n > PeekMax {
		high := r.Read(n - 32)
		return high<<32 | r.Read(32)
	}
	v := r.next() >> (64 - n)
	r.at += n
	return v
}

// Unary reads ones and the zero after them, and returns how many ones. More than limit ones are an error, after which
// the Reader is beyond the end and the result is limit.
func (r *Reader) Unary(limit uint64) uint64 {
	ones := uint64(0)
	for {
		run := uint(bits.LeadingZeros64(^r.next()))
		if run < PeekMax {
			r.at += run + 1
			if ones += uint64(run); ones <= limit {
				return ones
			}
		} else if ones += PeekMax; ones <= limit {
			r.at += PeekMax
			continue
		}
		r.at = 8*uint(len(r.src)) + 1
		return limit
	}
}

// Over reports whether more was read than there is.
func (r *Reader) Over() bool { return r.at > 8*uint(len(r.src)) }

// Close returns the number of bytes that were read, whole or in part. ok is false if they end too early or the last is
// not filled up with zeros.
func (r *Reader) Close() (used int, ok bool) {
	if r.Over() {
		return len(r.src), false
	}
	used = int((r.at + 7) / 8)
	rest := 8*uint(used) - r.at
	return used, rest == 0 || r.src[used-1]<<(8-rest) == 0
}

// next returns the next PeekMax bits or more in the high bits of a word; bits beyond the end are 0.
func (r *Reader) next() uint64 {
	i := r.at >> 3
	if i+8 <= uint(len(r.src)) {
		return binary.BigEndian.Uint64(r.src[i:]) << (r.at & 7)
	}
	return r.last(i) << (r.at & 7)
}

func (r *Reader) last(i uint) uint64 {
	var end [8]byte
	if i < uint(len(r.src)) {
		copy(end[:], r.src[i:])
	}
	return binary.BigEndian.Uint64(end[:])
}
