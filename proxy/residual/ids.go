package residual

import "encoding/binary"

// IDs are the numbers of rows: little-endian integers, as an index array has them.
type IDs struct {
	Bytes []byte
	Width int // bytes of each: 4 or 8
}

// Len returns how many there are.
func (ids IDs) Len() int { return len(ids.Bytes) / ids.Width }

// At returns the i-th.
func (ids IDs) At(i int) uint64 {
	if ids.Width == 4 {
		return uint64(binary.LittleEndian.Uint32(ids.Bytes[4*i:]))
	}
	return binary.LittleEndian.Uint64(ids.Bytes[8*i:])
}

// Ascending reports whether each is more than the one before, so that none is there twice.
func (ids IDs) Ascending() bool {
	for i := 1; i < ids.Len(); i++ {
		if ids.At(i) <= ids.At(i-1) {
			return false
		}
	}
	return true
}
