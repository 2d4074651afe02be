package keys

import (
	"math/bits"
	"sync"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
	"github.com/gradproxy/gradproxy/codecs/internal/huffman"
)

// Adaptive cuts an integer into m equal intervals, m = 2, 4, 8 or 16, writes each delta in as many of them as it needs,
// and before it a prefix with their number, either in log2 m bits or in Huffman's code of the frequencies of these
// numbers (SKCompress, section 5.2). Of the eight ways, each array takes the one that costs the least.
//
// Wire:
//
//	way    1 byte: bits 0-1 log2 m - 1, bit 2: Huffman's code, bit 3: integers have 64 bits, not 32
//	bits   with bit 2, the table of the code, as package huffman describes it; then of each key the prefix, which is the
//	       number of intervals less 1, and the delta in that many intervals
type Adaptive struct{}

// String implements Coding.
func (Adaptive) String() string { return "adaptive-prefix" }

// MaxLen implements Coding: no array takes more than with m = 2 and prefixes of one bit.
func (Adaptive) MaxLen(n int) int { return 1 + bitsLen(n, 65) }

// A way is how an array is written.
type way struct {
	log2m   uint // 1 to 4
	huffman bool
	wide    bool // integers of 64 bits
}

const (
	huffmanFlag = 1 << 2
	wideFlag    = 1 << 3
)

// interval returns the bits of an interval.
func (w way) interval() uint {
	if w.wide {
		return 64 >> w.log2m
	}
	return 32 >> w.log2m
}

// intervals returns the number of intervals that a number of so many bits takes; 0 has one.
func (w way) intervals(bits uint) uint { return max(1, (bits+w.interval()-1)/w.interval()) }

// counts returns the frequency of each prefix, from the frequencies of the lengths of deltas.
func (w way) counts(occur *[65]uint32) (of [16]uint32) {
	for n, times := range occur {
		if times > 0 {
			of[w.intervals(uint(n))-1] += times
		}
	}
	return of
}

// occurrences counts the deltas of each length in bits, which is one more than the paper's k, except that 0 has
// length 0.
func occurrences(keys []uint64) (occur [65]uint32) {
	last := uint64(0)
	for _, k := range keys {
		occur[bits.Len64(k-last)]++
		last = k
	}
	return occur
}

// A costed way comes with the bits that it takes for prefixes, table included, and for deltas.
type costed struct {
	way
	prefixes, deltas int
	code             *huffman.Code // nil for prefixes of one length
}

// words are the codes of 2, 4, 8 and 16 prefixes.
type words [4]huffman.Code

// pool recycles words: their tables are larger than many an array of keys.
var pool = sync.Pool{New: func() any { return new(words) }}

// cost computes the bits of w for keys with deltas of these lengths. It keeps a code in o.
func (w way) cost(occur *[65]uint32, o *words) costed {
	c := costed{way: w}
	counts := w.counts(occur)
	for i, times := range counts {
		c.deltas += int(times) * (i + 1) * int(w.interval())
		c.prefixes += int(times) * int(w.log2m)
	}
	if w.huffman {
		c.code = &o[w.log2m-1]
		used := counts[:1<<w.log2m]
		c.code.Init(used)
		c.prefixes = c.code.TableLen() + c.code.Cost(used)
	}
	return c
}

// ways returns the eight ways for keys with deltas of these lengths.
func ways(occur *[65]uint32) (all [8]way) {
	wide := false
	for _, times := range occur[33:] {
		wide = wide || times > 0
	}
	for i := range all {
		all[i] = way{log2m: uint(i/2 + 1), huffman: i%2 == 1, wide: wide}
	}
	return all
}

// cheapest returns the way that takes the fewest bits, the first of equal ones.
func cheapest(occur *[65]uint32, o *words) (best costed) {
	for i, w := range ways(occur) {
		if c := w.cost(occur, o); i == 0 || c.prefixes+c.deltas < best.prefixes+best.deltas {
			best = c
		}
	}
	return best
}

// Append implements Coding.
func (Adaptive) Append(dst []byte, keys []uint64) []byte {
	if len(keys) == 0 {
		return dst
	}
	mustAscend(keys)
	o := pool.Get().(*words)
	defer pool.Put(o)
	occur := occurrences(keys)
	return cheapest(&occur, o).append(dst, keys)
}

func (c costed) append(dst []byte, keys []uint64) []byte {
	head := byte(c.log2m - 1)
	if c.huffman {
		head |= huffmanFlag
	}
	if c.wide {
		head |= wideFlag
	}
	w := bitio.NewWriter(append(dst, head))
	if c.huffman {
		c.code.WriteTable(&w)
	}
	var intervals [65]uint8
	for n := range intervals {
		intervals[n] = uint8(c.intervals(uint(n)))
	}
	last := uint64(0)
	for _, k := range keys {
		delta := k - last
		last = k
		n := uint(intervals[bits.Len64(delta)])
		if c.huffman {
			c.code.Write(&w, int(n-1))
		} else {
			w.Write(uint64(n-1), c.log2m)
		}
		w.Write(delta, n*c.interval())
	}
	return w.Bytes()
}

// Decode implements Coding.
func (c Adaptive) Decode(keys []uint64, src []byte) (used int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if len(src) < 1 || 4*(len(src)-1) < len(keys) { // the shortest interval has two bits
		return 0, errShort(c, len(src), len(keys))
	}
	if src[0]>>4 != 0 {
		return 0, corrupt(c, "its first byte is %#02x", src[0])
	}
	w := way{log2m: uint(src[0]&3) + 1, huffman: src[0]&huffmanFlag != 0, wide: src[0]&wideFlag != 0}
	r := bitio.NewReader(src[1:])
	o := pool.Get().(*words)
	defer pool.Put(o)
	code := &o[w.log2m-1]
	if w.huffman && !code.ReadTable(&r, 1<<w.log2m) {
		return 0, corrupt(c, "its table of %d prefixes is none", 1<<w.log2m)
	}
	last := uint64(0)
	for i := range keys {
		var prefix uint
		if w.huffman {
			prefix = uint(code.Read(&r))
		} else {
			prefix = uint(r.Read(w.log2m))
		}
		key := last + r.Read((prefix+1)*w.interval())
		if key <= last && i > 0 {
			return 0, errDescent(c, i)
		}
		keys[i], last = key, key
	}
	used, ok := r.Close()
	if !ok {
		return 0, errEnd(c, len(keys))
	}
	return 1 + used, nil
}
