// Package huffman writes small integers in optimal prefix codes of their frequencies ([Huffman]). Symbols are 0 to n-1.
// Both ends must know the size n of the alphabet, at most 65,536, and the number of symbols that follow, which must not
// be 0.
//
// Code lengths are not limited, so that a code costs exactly what a paper's tree does. Of trees that are equally good,
// that with the shortest longest word is taken ([Moffat and Katajainen]: counts in ascending order, equal ones by
// descending symbol, and of a leaf and a tree of equal weight the leaf first). The code is canonical: shorter words
// come before longer ones, words of one length in the order of their symbols. A symbol that is alone has a word of no
// bits.
//
// # Wire
//
// The table of a code, in bits, for symbol 0, 1, ... until all n are covered. A length is that of the last symbol that
// has a word; at first it is that of n words of one length, ceil(log2 n):
//
//	0                this symbol's word has the same length
//	100              one bit more
//	101              one bit less
//	110 gamma(k)     the next k symbols have no word, k >= 1
//	111 length       6 bits; 0 for a symbol that is alone
//
// gamma(k) is Elias's: as many zeros as k has bits after its first, then k. The words have to fill the code space: then
// any bits are symbols.
//
// [Huffman]: https://doi.org/10.1109/JRPROC.1952.273898
// [Moffat and Katajainen]: https://doi.org/10.1007/3-540-60220-8_79
package huffman

import (
	"fmt"
	"math/bits"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

const (
	// MaxSymbols is the number of symbols that an alphabet can have.
	MaxSymbols = 1 << 16
	// maxBits is the longest word. One of 58 bits takes symbols that occur 2^40 times together (Fibonacci's numbers).
	maxBits  = bitio.PeekMax
	maxTotal = 1 << 39
)

// A Code has the words of an alphabet. The zero Code has none; Init or ReadTable gives it some, as often as one
// likes, and reuses its memory.
type Code struct {
	words  []word   // of each symbol
	sorted []uint16 // symbols in the order of their words

	longest uint     // bits
	ends    []uint64 // [length]: the first word that is longer, as a number of longest bits
	starts  []int    // [length]: the number to add to a word of that length to get its place in sorted
	short   []entry  // [next peek bits]: the symbol of the word that they begin with, if it is that short
	peek    uint

	leaves []leaf
}

type word struct {
	bits uint64
	len  uint8 // 0: none, or the only symbol
}

type entry struct {
	symbol uint16
	len    uint8
	known  bool
}

// Init makes c the optimal code of an alphabet of len(counts) symbols. Symbol s occurs counts[s] times. One that does
// not occur has no word. It panics if there are more than MaxSymbols or they occur more than 2^39 times together.
func (c *Code) Init(counts []uint32) {
	if len(counts) > MaxSymbols {
		panic(fmt.Sprintf("huffman: %d symbols", len(counts)))
	}
	c.words = resize(c.words, len(counts))
	clear(c.words)
	c.leaves = c.leaves[:0]
	total := uint64(0)
	for s, n := range counts {
		if n > 0 {
			c.leaves = append(c.leaves, leaf{uint64(n), uint16(s)})
			total += uint64(n)
		}
	}
	if total > maxTotal {
		panic(fmt.Sprintf("huffman: symbols occur %d times", total))
	}
	lengths(c.leaves)
	c.sorted = c.sorted[:0]
	for _, l := range c.leaves {
		c.words[l.symbol].len = uint8(l.weight)
		c.sorted = append(c.sorted, l.symbol)
	}
	c.assign()
}

// Len returns the number of bits that the word of a symbol has, 0 if it has none.
func (c *Code) Len(symbol int) uint { return uint(c.words[symbol].len) }

// Cost returns the bits of the words of symbols that occur so often, without the table.
func (c *Code) Cost(counts []uint32) int {
	bits := 0
	for s, n := range counts {
		bits += int(n) * int(c.words[s].len)
	}
	return bits
}

// Fixed returns the number of bits that symbols take in words of one length.
func Fixed(symbols int) uint { return uint(bits.Len(uint(max(symbols, 1) - 1))) }

// Write writes the word of a symbol, which must have one.
func (c *Code) Write(w *bitio.Writer, symbol int) {
	p := &c.words[symbol]
	w.Write(p.bits, uint(p.len))
}

// Read reads a symbol. Any bits are one.
func (c *Code) Read(r *bitio.Reader) int {
	e := &c.short[r.Peek(c.peek)]
	if e.known {
		r.Skip(uint(e.len))
		return int(e.symbol)
	}
	return c.readLong(r)
}

func (c *Code) readLong(r *bitio.Reader) int {
	next := r.Peek(c.longest)
	n := c.peek + 1
	for next >= c.ends[n] {
		n++
	}
	r.Skip(n)
	return int(c.sorted[c.starts[n]+int(next>>(c.longest-n))])
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
