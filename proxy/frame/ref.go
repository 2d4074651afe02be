package frame

import (
	"encoding/binary"
	"fmt"
)

// A ValueRef names a value of the value cache on a connection's stream.
type ValueRef struct {
	Epoch, ID uint64 // number of the value stream; number of the value on it, from 1
	Size      int    // bytes of the value
}

// Append appends the body of the Ref frame.
func (r ValueRef) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, r.Epoch)
	dst = binary.AppendUvarint(dst, r.ID)
	return binary.AppendUvarint(dst, uint64(r.Size))
}

// ParseRef reads the body of a Ref frame.
func ParseRef(body []byte) (ValueRef, error) {
	f := Fields{B: body}
	r := ValueRef{Epoch: uint64(f.Int()), ID: uint64(f.Int()), Size: f.Int()}
	if f.Short || r.ID == 0 || r.Size == 0 || r.Size > MaxBlock {
		return r, fmt.Errorf("%w: ref is cut short, or names a value of %d bytes", ErrFrame, r.Size)
	}
	return r, nil
}

// A Tag names a connection on value streams: the number that its opener gave it, and whether the writer of the tag is
// that opener.
type Tag struct {
	Number uint64
	Mine   bool
}

// Append appends the tag as its writer means it.
func (t Tag) Append(dst []byte) []byte {
	x := t.Number << 1
	if t.Mine {
		x |= 1
	}
	return binary.AppendUvarint(dst, x)
}

// Tag reads a tag as its reader means it.
func (f *Fields) Tag() Tag {
	x := uint64(f.Int())
	return Tag{x >> 1, x&1 == 0}
}
