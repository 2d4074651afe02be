package pslite

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// keys reads a frame of keys, in pieces of any size. It keeps the first two and a hash of all.
type keys struct {
	bytes int
	first [16]byte
	hash  *xxhash.Digest // made when there are more than first holds
	again bool           // the answer that they are of is likely to come again
}

func (k *keys) begin() { k.bytes, k.again = 0, false }

// add takes the next bytes of the frame.
func (k *keys) add(b []byte) {
	at := k.bytes
	k.bytes += len(b)
	if at < len(k.first) {
		copy(k.first[at:], b)
	}
	if k.bytes <= len(k.first) {
		return
	}
	if at <= len(k.first) { // the hash begins with the bytes kept in first
		if k.hash == nil {
			k.hash = xxhash.New()
		}
		k.hash.Reset()
		k.hash.Write(k.first[:at])
	}
	k.hash.Write(b)
}

// sum returns a hash of the frame.
func (k *keys) sum() uint64 {
	if k.bytes > len(k.first) {
		return k.hash.Sum64()
	}
	return xxhash.Sum64(k.first[:k.bytes])
}

// at returns key i, 0 or 1, of a frame whose keys have width bytes.
func (k *keys) at(i, width int) uint64 {
	if width == 4 {
		return uint64(binary.LittleEndian.Uint32(k.first[4*i:]))
	}
	return binary.LittleEndian.Uint64(k.first[8*i:])
}

// keyWidth returns the bytes of a key by the type of its frame, 0 if it is no frame of keys.
func keyWidth(t byte) int {
	switch t {
	case typeUint64:
		return 8
	case typeUint32:
		return 4
	}
	return 0
}

// lens reads a frame of lengths, in pieces of any size.
type lens struct {
	sum   int64 // of the lengths so far
	bad   bool  // one was negative
	part  [4]byte
	parts int // bytes of the next length, in part
}

// add takes the next bytes of the frame.
func (l *lens) add(b []byte) {
	for len(b) > 0 {
		if l.parts == 0 && len(b) >= 4 {
			l.length(b)
			b = b[4:]
			continue
		}
		n := copy(l.part[l.parts:], b)
		b = b[n:]
		if l.parts += n; l.parts == 4 {
			l.length(l.part[:])
			l.parts = 0
		}
	}
}

func (l *lens) length(b []byte) {
	n := int32(binary.LittleEndian.Uint32(b))
	l.sum += int64(n)
	l.bad = l.bad || n < 0
}

// agrees reports whether the lengths add up to size bytes of vals whose elements have width bytes. MXNet counts bytes,
// but elements in answers with rows.
func (l *lens) agrees(size, width int) bool {
	return !l.bad && l.parts == 0 && (l.sum == int64(size) || l.sum*int64(width) == int64(size))
}
