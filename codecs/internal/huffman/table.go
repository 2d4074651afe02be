package huffman

import (
	"math/bits"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

const lengthBits = 6 // of a length that is written whole

// WriteTable writes the table of c, from which ReadTable makes it again. There must be a symbol with a word.
func (c *Code) WriteTable(w *bitio.Writer) { c.table(w.Write) }

// TableLen returns the number of bits that WriteTable writes.
func (c *Code) TableLen() int {
	total := 0
	c.table(func(_ uint64, n uint) { total += int(n) })
	return total
}

func (c *Code) table(write func(v uint64, n uint)) {
	last := Fixed(len(c.words))
	for s := 0; s < len(c.words); {
		if k := c.absent(s); k > 0 {
			write(0b110, 3)
			write(uint64(k), uint(2*bits.Len(uint(k))-1)) // gamma: zeros before k
			s += k
			continue
		}
		switch n := uint(c.words[s].len); n {
		case last:
			write(0, 1)
		case last + 1:
			write(0b100, 3)
		case last - 1:
			write(0b101, 3)
		default:
			write(0b111, 3)
			write(uint64(n), lengthBits)
		}
		last = uint(c.words[s].len)
		s++
	}
}

// absent returns the number of symbols from s on without a word.
func (c *Code) absent(s int) (k int) {
	alone := len(c.sorted) == 1
	for s+k < len(c.words) && c.words[s+k].len == 0 && !(alone && int(c.sorted[0]) == s+k) {
		k++
	}
	return k
}

// ReadTable makes c the code of a table for an alphabet of so many symbols. It reports false, and c is unusable, if the
// bits are no table of a code that fills its space. Where they end the Reader may have to tell.
func (c *Code) ReadTable(r *bitio.Reader, symbols int) bool {
	c.words = resize(c.words, symbols)
	clear(c.words)
	c.sorted = c.sorted[:0]
	last := Fixed(symbols)
	for s := 0; s < symbols; s++ {
		if r.Peek(3) == 0b110 {
			r.Skip(3)
			k := int(gamma(r))
			if k < 1 || k > symbols-s {
				return false
			}
			s += k - 1
			continue
		}
		switch {
		case r.Read(1) == 0:
		case r.Read(1) == 1:
			r.Skip(1)
			last = uint(r.Read(lengthBits))
		case r.Read(1) == 0:
			last++
		default:
			last--
		}
		if last > maxBits {
			return false
		}
		c.words[s].len = uint8(last)
		c.sorted = append(c.sorted, uint16(s))
	}
	if alone := len(c.sorted) == 1; !alone && c.hasEmpty() {
		return false
	}
	return c.assign()
}

// hasEmpty reports whether a symbol has a word of no bits.
func (c *Code) hasEmpty() bool {
	for _, s := range c.sorted {
		if c.words[s].len == 0 {
			return true
		}
	}
	return false
}

// gamma reads a number from 1 to 2^24-1; it returns 0 or a larger one if the bits are invalid.
func gamma(r *bitio.Reader) uint64 {
	n := uint(bits.LeadingZeros32(uint32(r.Peek(24))<<8 | 0xff))
	return r.Read(2*n + 1)
}
