package lossless

import "encoding/binary"

// differences sets dst to the difference of each element of src, integers of width 4 or 8, to the one before, and the
// first to 0; it returns the first element, and ok only if none is smaller than the one before, as a signed or as an
// unsigned number: then dst is keys in order, with small gaps.
func differences(dst, src []byte, w int, signed bool) (first uint64, ok bool) {
	if w == 4 {
		flip := uint32(0) // makes the order of signed numbers that of unsigned ones
		if signed {
			flip = 1 << 31
		}
		last := binary.LittleEndian.Uint32(src)
		first = uint64(last)
		for i := 0; i+4 <= len(dst); i += 4 {
			x := binary.LittleEndian.Uint32(src[i:])
			if x^flip < last^flip {
				return 0, false
			}
			binary.LittleEndian.PutUint32(dst[i:], x-last)
			last = x
		}
		return first, true
	}
	flip := uint64(0)
	if signed {
		flip = 1 << 63
	}
	last := binary.LittleEndian.Uint64(src)
	first = last
	for i := 0; i+8 <= len(dst); i += 8 {
		x := binary.LittleEndian.Uint64(src[i:])
		if x^flip < last^flip {
			return 0, false
		}
		binary.LittleEndian.PutUint64(dst[i:], x-last)
		last = x
	}
	return first, true
}

// sum reverses differences in place. The first difference is not trusted to be 0: it counts as any other.
func sum(b []byte, w int, first uint64) {
	if w == 4 {
		last := uint32(first)
		for i := 0; i+4 <= len(b); i += 4 {
			last += binary.LittleEndian.Uint32(b[i:])
			binary.LittleEndian.PutUint32(b[i:], last)
		}
		return
	}
	for i := 0; i+8 <= len(b); i += 8 {
		first += binary.LittleEndian.Uint64(b[i:])
		binary.LittleEndian.PutUint64(b[i:], first)
	}
}
