package keys

import (
	"encoding/binary"
	"math"
	"slices"
)

// DeltaBinary writes each delta as the fewest bytes that hold it, 1 to 4, and their number as a prefix of two bits
// (SKCompress, section 5.1).
//
// Wire:
//
//	grain     1 byte: 1, or 2 if a delta has more than 32 bits
//	prefixes  ⌈n/4⌉ bytes: two bits a key, from the low bits of the first byte on, 0 beyond the last key
//	deltas    (prefix+1)·grain bytes each, little-endian
type DeltaBinary struct{}

// String implements Coding.
func (DeltaBinary) String() string { return "delta-binary" }

// MaxLen implements Coding.
func (DeltaBinary) MaxLen(n int) int { return 1 + (n+3)/4 + 8*n }

// Append implements Coding.
func (DeltaBinary) Append(dst []byte, keys []uint64) []byte {
	if len(keys) == 0 {
		return dst
	}
	grain := 1
	if maxDelta(keys) > math.MaxUint32 {
		grain = 2
	}
	dst = append(dst, byte(grain))
	from := len(dst)
	dst = slices.Grow(dst, (len(keys)+3)/4+2*len(keys)+8)
	for range (len(keys) + 3) / 4 {
		dst = append(dst, 0)
	}
	last := uint64(0)
	for i, k := range keys {
		delta := k - last
		last = k
		prefix := 0
		for prefix < 3 && delta>>(8*grain*(prefix+1)) != 0 {
			prefix++
		}
		dst[from+i/4] |= byte(prefix << (i % 4 * 2))
		end := len(dst) + (prefix+1)*grain
		dst = binary.LittleEndian.AppendUint64(dst, delta)[:end]
	}
	return dst
}

// Decode implements Coding.
func (c DeltaBinary) Decode(keys []uint64, src []byte) (used int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	prefixes := (len(keys) + 3) / 4
	if len(src) < 1+prefixes+len(keys) {
		return 0, errShort(c, len(src), len(keys))
	}
	grain := int(src[0])
	if grain != 1 && grain != 2 {
		return 0, corrupt(c, "its grain is %d bytes", grain)
	}
	prefix, deltas := src[1:1+prefixes], src[1+prefixes:]
	if rest := len(keys) % 4; rest > 0 && prefix[prefixes-1]>>(2*rest) != 0 {
		return 0, corrupt(c, "there are prefixes beyond its %d keys", len(keys))
	}
	last := uint64(0)
	for i := range keys {
		width := (int(prefix[i/4]>>(i%4*2)&3) + 1) * grain
		var delta uint64
		switch {
		case len(deltas) >= 8:
			delta = binary.LittleEndian.Uint64(deltas) & (1<<(8*width) - 1)
		case len(deltas) >= width:
			var b [8]byte
			copy(b[:], deltas[:width])
			delta = binary.LittleEndian.Uint64(b[:])
		default:
			return 0, errShort(c, len(src), len(keys))
		}
		deltas = deltas[width:]
		key := last + delta
		if key <= last && i > 0 {
			return 0, errDescent(c, i)
		}
		keys[i], last = key, key
	}
	return len(src) - len(deltas), nil
}
