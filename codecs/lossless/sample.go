package lossless

import (
	"encoding/binary"

	"github.com/gradproxy/gradproxy/codecs/internal/entropy"
)

// A sample estimates the cost of each plane of some elements, from a few of them: it must be cheap where nothing is to
// be gained. Its figures decide how a chunk is coded, never whether it can be decoded.
type sample struct {
	count  [8][256]uint16 // how often each byte was seen in each plane
	n      int            // elements seen
	zeros  int            // zero elements among them
	planes int
	second [256]uint16 // count of the exponents of every second element, while they are taken

	touched byte // means nothing
}

const (
	samplePlaces = 32 // runs of elements, evenly spaced, so that rows are seen as well as neighbours
	sampleRun    = 32 // elements in each
	sampleMax    = samplePlaces * sampleRun
)

// take samples the elements in b as f takes them apart, with a float32 always in four planes.
func (s *sample) take(f form, b []byte) {
	w := f.width()
	s.planes, s.n, s.zeros = w, 0, 0
	clear(s.count[:w])
	n := len(b) / w
	if k := f & formKind; k == formFloat16 || k == formFloat32 || k == formFloat32Split {
		clear(s.second[:])
		defer s.addSecond(w - 1)
	}
	if n <= sampleMax {
		s.run(f, b[:n*w])
		return
	}
	step, length := (n-sampleRun)/(samplePlaces-1)*w, sampleRun*w
	// A chunk comes from memory: all its places are asked for at once, since one after another would be waited for.
	var touched byte
	for i := range samplePlaces {
		for at := 0; at < length; at += 64 {
			touched ^= b[i*step+at]
		}
		touched ^= b[i*step+length-1]
	}
	s.touched = touched
	for i := range samplePlaces {
		s.run(f, b[i*step:i*step+length])
	}
}

// addSecond adds the counts of second to plane p.
func (s *sample) addSecond(p int) {
	for i, c := range &s.second {
		s.count[p][i] += c
	}
}

// run counts the elements in b.
func (s *sample) run(f form, b []byte) {
	c := &s.count
	w := f.width()
	zeros := 0
	switch f & formKind {
	case formBytes:
		for _, x := range b {
			c[0][x]++
		}
	case formInt16:
		for i := 0; i+2 <= len(b); i += 2 {
			x := binary.LittleEndian.Uint16(b[i:])
			c[0][byte(x)]++
			c[1][byte(x>>8)]++
			zeros += isZero(uint64(x))
		}
	case formFloat16:
		zeros = s.float16(b)
	case formInt32:
		for i := 0; i+4 <= len(b); i += 4 {
			x := binary.LittleEndian.Uint32(b[i:])
			c[0][byte(x)]++
			c[1][byte(x>>8)]++
			c[2][byte(x>>16)]++
			c[3][byte(x>>24)]++
			zeros += isZero(uint64(x))
		}
	case formFloat32, formFloat32Split:
		zeros = s.float32(b)
	case formInt64, formFloat64:
		for i := 0; i+8 <= len(b); i += 8 {
			x := binary.LittleEndian.Uint64(b[i:])
			zeros += isZero(x)
			if f&formKind == formFloat64 {
				x = exchange64(x)
			}
			for p := range c {
				c[p][byte(x)]++
				x >>= 8
			}
		}
	}
	s.n += len(b) / w
	s.zeros += zeros
}

// float16 counts the elements in b, of two bytes, and returns how many are zero. It takes two at once, whose exponents
// are often the same: counting one would wait for the other.
func (s *sample) float16(b []byte) (zeros int) {
	c := &s.count
	i := 0
	for ; i+4 <= len(b); i += 4 {
		x := binary.LittleEndian.Uint32(b[i:])
		c[0][byte(x&0x7f|x>>8&0x80)]++
		c[1][byte(x>>7)]++
		c[0][byte(x>>16&0x7f|x>>24&0x80)]++
		s.second[byte(x>>23)]++
		zeros += isZero(uint64(uint16(x))) + isZero(uint64(x>>16))
	}
	if i+2 <= len(b) {
		x := binary.LittleEndian.Uint16(b[i:])
		c[0][byte(x&0x7f|x>>8&0x80)]++
		c[1][byte(x>>7)]++
		zeros += isZero(uint64(x))
	}
	return zeros
}

// float32 counts the elements in b, of four bytes, as float16 does.
func (s *sample) float32(b []byte) (zeros int) {
	c := &s.count
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		c[0][byte(x)]++
		c[1][byte(x>>8)]++
		c[2][byte(x>>16&0x7f|x>>24&0x80)]++
		c[3][byte(x>>23)]++
		c[0][byte(x>>32)]++
		c[1][byte(x>>40)]++
		c[2][byte(x>>48&0x7f|x>>56&0x80)]++
		s.second[byte(x>>55)]++
		zeros += isZero(uint64(uint32(x))) + isZero(x>>32)
	}
	if i+4 <= len(b) {
		x := binary.LittleEndian.Uint32(b[i:])
		c[0][byte(x)]++
		c[1][byte(x>>8)]++
		c[2][byte(x>>16&0x7f|x>>24&0x80)]++
		c[3][byte(x>>23)]++
		zeros += isZero(uint64(x))
	}
	return zeros
}

// isZero returns 1 if x is 0, else 0.
func isZero(x uint64) int { return int(1 - (x|-x)>>63) }

// maxCount returns the frequency of plane p's most frequent byte value.
func (s *sample) maxCount(p int) int {
	var largest uint16
	for _, c := range &s.count[p] {
		largest = max(largest, c)
	}
	return int(largest)
}

// bits estimates the order-0 entropy of plane p, in bits a byte, and returns how many byte values it has.
func (s *sample) bits(p int) (bits float64, symbols int) {
	if s.n == 0 {
		return 0, 0
	}
	return entropy.Bits(&s.count[p], s.n)
}
