// Package keys codes strictly ascending integers: the positions of the values that a sparse gradient has, the rows of a
// sparse push. It has the key encodings of SKCompress ([Jiang et al.], sections 5.1 and 5.2: [DeltaBinary] and
// [Adaptive]) and of FastSGD ([Yang et al.], section 3.3: [BitGrain]), and two that come closest to the entropy of keys
// drawn at random: [Rice] codes, and a [Bitmap] where every third integer is a key or more. Each is a [Coding],
// which methods for sparse gradients use for their positions, and a lossless codec of integer elements ([New]):
// delta-binary, adaptive-prefix, bit-grain, rice and bitmap.
//
// Deviations from the papers: keys have 64 bits, where the papers have 32; where an array needs more than 32, grains
// and intervals are twice as wide, and arrays say so. FastSGD's M is the length of the largest delta in binary, since
// its ⌈log2(maxDelta)⌉ is one less, and too few, where that is a power of two.
//
// # State
//
// None: every encoding can be decoded by itself.
//
// # Wire
//
// An array of no keys takes no byte; how many keys there are, the reader knows from elsewhere. Otherwise the first byte
// says how the others are to be read; each Coding describes its own. Where there are bits, the first is the most
// significant of its byte, numbers have their most significant bit first, and the last byte is filled up with zeros.
// Deltas are the difference of each key to the one before, and the first key itself.
//
// An element codec writes the first element as unsigned LEB128 and then the array of all others, each less the first:
// blocks of a large tensor begin anywhere.
//
// # Bounds
//
// n keys below N that are drawn at random cost at least n·H(p)/p bits, where p = n/N and H is the binary entropy; the
// best coding takes at most 1.02 times that: Rice for p up to 0.3, Bitmap for others. (Rice takes 1.04 times that about
// p = 0.38, and never less than a bit a key, which is too much from p = 0.6 on.) An array has its first key and a few
// bytes besides, and a Bitmap's table some 150, which matter where keys, or the integers that are no keys, are few. Any
// n keys take at most MaxLen(n) bytes; element codecs never let a block grow. Time: O(n), a few passes; a Bitmap, where
// it may be shorter, 3 to 8 times Rice's. Memory: one number an element while an element codec runs, two with Bitmap.
//
// # Unsuited
//
// Elements that do not ascend strictly, negative ones, types other than int32, uint32, int64 and uint64, and blocks
// that would not get shorter.
//
// [Jiang et al.]: https://doi.org/10.1007/s00778-019-00596-3
// [Yang et al.]: https://arxiv.org/abs/2112.04291v1
package keys

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
)

// A Coding is a way of writing strictly ascending keys as bytes. It has no state and is safe for concurrent use.
type Coding interface {
	// String returns the text that names the element codec made of it: "bit-grain(l=3)".
	String() string
	// Append appends the encoding of keys to dst. It neither modifies nor retains keys, and panics if they do not
	// ascend strictly: see [Ascending].
	Append(dst []byte, keys []uint64) []byte
	// Decode sets keys from the encoding of strictly ascending keys with which src begins, and returns the length of
	// that encoding, or an error that wraps codecs.ErrCorrupt. Any src is safe: Decode allocates at most as many bytes
	// as keys has, and some KiB.
	Decode(keys []uint64, src []byte) (used int, err error)
	// MaxLen returns the maximum of bytes that n keys can take.
	MaxLen(n int) int
}

// descent returns the index of the first key that is not greater than the one before, -1 if there is none.
func descent[K key](keys []K) int {
	for i := 1; i < len(keys); i++ {
		if keys[i] <= keys[i-1] {
			return i
		}
	}
	return -1
}

// mustAscend panics if keys do not ascend strictly.
func mustAscend[K key](keys []K) {
	if i := descent(keys); i >= 0 {
		panic(fmt.Sprintf("keys: key %d is %d, after %d; keys must ascend", i, keys[i], keys[i-1]))
	}
}

// maxDelta returns the largest delta of keys, which must not be empty. It panics if they do not ascend strictly.
func maxDelta(keys []uint64) uint64 {
	mustAscend(keys)
	largest := keys[0]
	for i := 1; i < len(keys); i++ {
		largest = max(largest, keys[i]-keys[i-1])
	}
	return largest
}

// corrupt makes the error of a Decode.
func corrupt(c Coding, format string, v ...any) error {
	return fmt.Errorf("%w: %v: %s", codecs.ErrCorrupt, c, fmt.Sprintf(format, v...))
}

// errShort is the error of an encoding that has too few bytes for n keys.
func errShort(c Coding, have, n int) error {
	return corrupt(c, "%d bytes are too few for the %d keys", have, n)
}

// errDescent is the error of key i, which does not ascend.
func errDescent(c Coding, i int) error {
	return corrupt(c, "key %d is not greater than the one before", i)
}

// errEnd is the error of bits that end too early or not with zeros.
func errEnd(c Coding, n int) error {
	return corrupt(c, "its bits do not end after %d keys", n)
}

// BitsPerKey returns the bits that c takes for each of keys, everything counted; 0 without keys.
func BitsPerKey(c Coding, keys []uint64) float64 {
	if len(keys) == 0 {
		return 0
	}
	return 8 * float64(len(c.Append(nil, keys))) / float64(len(keys))
}
