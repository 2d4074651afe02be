package tensor

import (
	"crypto/subtle"
	"encoding/binary"
)

// A Mask is the difference between the bytes on the wire and elements: each byte is the element's byte XOR a byte of
// the Mask, its four bytes in turn. The zero Mask changes nothing.
type Mask [4]byte

// From returns the Mask of the bytes from off on, where m is that of the bytes from 0 on. off may be negative.
func (m Mask) From(off int) Mask {
	k := off & 3
	return Mask{m[k], m[(k+1)&3], m[(k+2)&3], m[(k+3)&3]}
}

// Apply masks b, or unmasks it: both are the same.
func (m Mask) Apply(b []byte) { m.Copy(b, b) }

// Copy sets dst to src, masked or unmasked. They may be the same memory, and must be of one length.
func (m Mask) Copy(dst, src []byte) {
	if m == (Mask{}) {
		copy(dst, src)
		return
	}
	var key [512]byte
	word := uint64(binary.LittleEndian.Uint32(m[:]))
	word |= word << 32
	for i := 0; i < len(key) && i < len(src); i += 8 {
		binary.LittleEndian.PutUint64(key[i:], word)
	}
	for len(src) > 0 {
		n := subtle.XORBytes(dst, src, key[:])
		dst, src = dst[n:], src[n:]
	}
}
