package lossless

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
)

// Exponents in four bits: the exponents of dense gradients and weights spread over few values, so that nearly all are
// one of fifteen neighbours, and the others can stand aside. Eight bytes are coded at once.

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
	lows  = 0x0f * ones

	escape     = 15
	maxBase    = 255 - (escape - 1)
	escapePart = 8 // at most one in so many elements is an escape
)

// window returns the first of the escape neighbouring byte values of plane p that are most frequent in the sample, and
// their number there.
func (s *sample) window(p int) (base, inside int) {
	c := &s.count[p]
	sum := 0
	for v := range escape {
		sum += int(c[v])
	}
	// The window's number stands below its count, the first window's as the largest number: the maximum takes no
	// branch.
	best := sum<<8 | maxBase
	for v := 1; v <= maxBase; v++ {
		sum += int(c[v+escape-1]) - int(c[v-1])
		best = max(best, sum<<8|(maxBase-v))
	}
	return maxBase - best&0xff, best >> 8
}

// fourBitsLen returns the bytes that n exponents take without escapes.
func fourBitsLen(n int) int { return (n + 15) / 16 * 8 }

// appendFourBits appends the exponents in p, a multiple of eight of them, or reports that they need too many escapes.
func appendFourBits(dst, p []byte, base byte) (_ []byte, ok bool) {
	n := fourBitsLen(len(p))
	limit := 4 + n + len(p)/escapePart
	begin := len(dst)
	dst = slices.Grow(dst, limit+16)[:begin+4+n]
	dst[begin] = base
	out := dst[begin+4:]
	dst, i := appendFourBitsTiles(dst, out, p, base, begin+limit)
	if len(dst)-begin > limit {
		return nil, false
	}
	b := uint64(base) * ones
	for ; i < len(p); i += 16 {
		x := binary.LittleEndian.Uint64(p[i:])
		v, e := fourBits(x, b)
		if e != 0 {
			dst = appendEscapes(dst, x, e)
		}
		if i+16 <= len(p) {
			y := binary.LittleEndian.Uint64(p[i+8:])
			u, e := fourBits(y, b)
			if e != 0 {
				dst = appendEscapes(dst, y, e)
			}
			v |= u << 4
		}
		if len(dst)-begin > limit {
			return nil, false
		}
		binary.LittleEndian.PutUint64(out[i/2:], v)
	}
	putUint24(dst[begin+1:], len(dst)-begin-4-n)
	return dst, true
}

// tilePiece is the number of exponents that a kernel takes at once: its result has a bit for each that escapes.
const tilePiece = 4 << 10

// appendFourBitsTiles is appendFourBits for the first n exponents of p, unless dst gets longer than limit.
func appendFourBitsTiles(dst, out, p []byte, base byte, limit int) (_ []byte, n int) {
	var escapes [tilePiece / 8]byte
	for n < len(p) {
		k := packTiles(out[n/2:], escapes[:], p[n:min(n+tilePiece, len(p))], base)
		if k == 0 {
			break
		}
		for i := 0; i < k; i += 64 {
			for e := binary.LittleEndian.Uint64(escapes[i/8:]); e != 0; e &= e - 1 {
				dst = append(dst, p[n+i+bits.TrailingZeros64(e)])
			}
			if len(dst) > limit {
				return dst, n
			}
		}
		n += k
	}
	return dst, n
}

// fourBits returns, for each byte of x, its difference to the byte of b if that is under escape, else escape, and the
// high bit of each byte that escapes.
func fourBits(x, b uint64) (v, e uint64) {
	d := (x | highs - b&^highs) ^ (x^^b)&highs // byte by byte, no borrow between them
	e = (d&^highs + (0x80-escape)*ones | d) & highs
	return (d | e>>7*0x0f) & lows, e
}

// appendEscapes appends the bytes of x that have their high bit in e.
func appendEscapes(dst []byte, x, e uint64) []byte {
	for ; e != 0; e &= e - 1 {
		dst = append(dst, byte(x>>(bits.TrailingZeros64(e)-7)))
	}
	return dst
}

var (
	errBase    = errors.New("a base of exponents is over 241")
	errEscapes = errors.New("the escapes do not add up")
)

// readFourBits reverses appendFourBits.
func readFourBits(r *reader, dst []byte) {
	base, count := r.byte(), r.uint24()
	in := r.take(fourBitsLen(len(dst)))
	escapes := r.take(count)
	if base > maxBase {
		r.fail(errBase)
	}
	if r.err != nil {
		return
	}
	escapes, i := readFourBitsTiles(dst, in, base, escapes)
	b := uint64(base) * ones
	for ; i+8 <= len(dst); i += 8 {
		v := binary.LittleEndian.Uint64(in[i/16*8:]) >> (i / 8 & 1 * 4) & lows
		x := v + b
		if e := (v + (0x80-escape)*ones) & highs; e != 0 {
			k := bits.OnesCount64(e)
			if k > len(escapes) {
				r.fail(errEscapes)
				return
			}
			x = insertEscapes(x, e, escapes)
			escapes = escapes[k:]
		}
		binary.LittleEndian.PutUint64(dst[i:], x)
	}
	if len(escapes) > 0 {
		r.fail(errEscapes)
	}
}

// readFourBitsTiles is readFourBits for the first n exponents. It returns the escapes that are left.
func readFourBitsTiles(dst, in []byte, base byte, escapes []byte) (left []byte, n int) {
	var found [tilePiece / 8]byte
	for n < len(dst) {
		k := unpackTiles(dst[n:min(n+tilePiece, len(dst))], found[:], in[n/2:], base)
		if k == 0 {
			break
		}
		for i := 0; i < k; i += 64 {
			for e := binary.LittleEndian.Uint64(found[i/8:]); e != 0; e &= e - 1 {
				if len(escapes) == 0 {
					return nil, n + i // where the loop in Go finds that out
				}
				dst[n+i+bits.TrailingZeros64(e)] = escapes[0]
				escapes = escapes[1:]
			}
		}
		n += k
	}
	return escapes, n
}

// insertEscapes replaces the bytes of x that have their high bit in e by the bytes of escapes.
func insertEscapes(x, e uint64, escapes []byte) uint64 {
	for ; e != 0; e &= e - 1 {
		at := bits.TrailingZeros64(e) - 7
		x = x&^(0xff<<at) | uint64(escapes[0])<<at
		escapes = escapes[1:]
	}
	return x
}
