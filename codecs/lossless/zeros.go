package lossless

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

// The map of elements that are not zero has one bit an element, in 64-bit words, here as in memory of a little-endian
// machine; the wire has its first (n+7)/8 bytes or its runs.

const (
	mapBits = 0
	mapRuns = 1
)

// mapLen returns the bytes of the map of n elements, in whole words.
func mapLen(n int) int { return (n + 63) / 64 * 8 }

// mapZeros fills m, of mapLen bytes, from the elements in b, of width w, and returns the number of elements that are
// not zero.
func mapZeros(m, b []byte, w int) (left int) {
	for i := 0; i < len(m); i += 8 {
		run := b[8*i*w : min(len(b), 8*(i+8)*w)]
		if len(run) < 64*w { // the last: nothing but zeros beyond it
			var padded [64 * 8]byte
			copy(padded[:], run)
			run = padded[:64*w]
		}
		x := notZero(run, w)
		binary.LittleEndian.PutUint64(m[i:], x)
		left += bits.OnesCount64(x)
	}
	return left
}

// notZero returns a bit for each of the 64 elements in b, 1 if it is not zero. It looks at a word of elements at once
// and so collects a bit of every lane in that lane; shuffles then bring the lanes' bits in order.
func notZero(b []byte, w int) (x uint64) {
	high := uint64(math.MaxUint64) / (1<<(8*w-1)<<1 - 1) << (8*w - 1) // the highest bit of each lane
	for ; len(b) >= 8; b = b[8:] {
		v := binary.LittleEndian.Uint64(b)
		x = x>>1&^high | (v&^high+^high|v)&high
	}
	for ; w < 8; w *= 2 {
		x = shuffle(x)
	}
	return x
}

// shuffle returns x with the bits of its lower half at the even places and the bits of its upper half at the odd ones:
// section 7-2 of Warren, Hacker's Delight.
func shuffle(x uint64) uint64 {
	t := (x ^ x>>16) & 0x00000000ffff0000
	x ^= t ^ t<<16
	t = (x ^ x>>8) & 0x0000ff000000ff00
	x ^= t ^ t<<8
	t = (x ^ x>>4) & 0x00f000f000f000f0
	x ^= t ^ t<<4
	t = (x ^ x>>2) & 0x0c0c0c0c0c0c0c0c
	x ^= t ^ t<<2
	t = (x ^ x>>1) & 0x2222222222222222
	return x ^ t ^ t<<1
}

// pack sets dst to the elements of src that m has.
func pack(dst, src, m []byte, w int) {
	for i := 0; i < len(m); i += 8 {
		run := src[8*i*w : min(len(src), 8*(i+8)*w)]
		x := binary.LittleEndian.Uint64(m[i:])
		if x == math.MaxUint64 {
			dst = dst[copy(dst, run):]
			continue
		}
		for ; x != 0; x &= x - 1 {
			copyElement(dst, run[bits.TrailingZeros64(x)*w:], w)
			dst = dst[w:]
		}
	}
}

// unpack sets dst to the elements in src where m has them, and to zeros where it does not.
func unpack(dst, src, m []byte, w int) {
	for i := 0; i < len(m); i += 8 {
		run := dst[8*i*w : min(len(dst), 8*(i+8)*w)]
		x := binary.LittleEndian.Uint64(m[i:])
		if x == math.MaxUint64 {
			src = src[copy(run, src):]
			continue
		}
		clear(run)
		for ; x != 0; x &= x - 1 {
			copyElement(run[bits.TrailingZeros64(x)*w:], src, w)
			src = src[w:]
		}
	}
}

func copyElement(dst, src []byte, w int) {
	switch w {
	case 2:
		*(*[2]byte)(dst) = [2]byte(src)
	case 4:
		*(*[4]byte)(dst) = [4]byte(src)
	case 8:
		*(*[8]byte)(dst) = [8]byte(src)
	}
}

// appendMap appends the map m of n elements: as runs, which rows of zeros make few, if they are much shorter.
func (s *scratch) appendMap(dst, m []byte, n int) []byte {
	at := len(dst)
	dst = append(dst, mapRuns, 0, 0, 0)
	limit := len(dst) + n/64
	for i, ones := 0, true; i < n; ones = !ones {
		run := runLength(m, i, n, ones)
		i += run
		if dst = binary.AppendUvarint(dst, uint64(run)); len(dst) > limit {
			return s.appendPlane(append(dst[:at], mapBits), m[:(n+7)/8], coding{kind: planeHuffman})
		}
	}
	putUint24(dst[at+1:], len(dst)-at-4)
	return dst
}

// runLength returns the length of the run of bits from i on, of the n in m, that are 1 if ones, else 0.
func runLength(m []byte, i, n int, ones bool) int {
	begin := i
	for i < n {
		x := binary.LittleEndian.Uint64(m[i/64*8:])
		if ones {
			x = ^x
		}
		x >>= i % 64
		if x != 0 {
			return min(n, i+bits.TrailingZeros64(x)) - begin
		}
		i = i/64*64 + 64
	}
	return n - begin
}

var (
	errRuns = errors.New("the map's runs do not add up")
	errMap  = errors.New("the map has another form, or too many bits")
)

// readMap reads the map of n elements into m and returns the number of elements that are not zero.
func (s *scratch) readMap(r *reader, n int) (m []byte, left int) {
	m = s.zeros.room(mapLen(n))
	clear(m)
	switch r.byte() {
	case mapBits:
		s.readPlane(r, m[:(n+7)/8])
	case mapRuns:
		readRuns(m, r.take(r.uint24()), n, r)
	default:
		r.fail(errMap)
	}
	for i := 0; i < len(m); i += 8 {
		left += bits.OnesCount64(binary.LittleEndian.Uint64(m[i:]))
	}
	if n%64 != 0 && binary.LittleEndian.Uint64(m[len(m)-8:])>>(n%64) != 0 {
		r.fail(errMap)
	}
	return m, left
}

// readRuns sets the bits of n elements in m, which is clear, from their runs.
func readRuns(m, runs []byte, n int, r *reader) {
	for i, ones := 0, true; i < n; ones = !ones {
		run, k := binary.Uvarint(runs)
		if k <= 0 || run > uint64(n-i) || run == 0 && i > 0 {
			r.fail(errRuns)
			return
		}
		runs = runs[k:]
		if ones {
			setBits(m, i, int(run))
		}
		i += int(run)
	}
	if len(runs) > 0 {
		r.fail(errRuns)
	}
}

// setBits sets n bits of m from bit i on.
func setBits(m []byte, i, n int) {
	for n > 0 {
		k := min(n, 64-i%64)
		w := m[i/64*8 : i/64*8+8]
		binary.LittleEndian.PutUint64(w, binary.LittleEndian.Uint64(w)|(1<<k-1)<<(i%64))
		i, n = i+k, n-k
	}
}
