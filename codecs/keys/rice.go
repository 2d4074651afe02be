package keys

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

// Rice writes how many integers are between a key and the one before in the code that suits keys drawn at random:
// divided by a number, the quotient in unary and the remainder in binary. The divisor is a power of two, as in the
// codes of [Rice and Plaunt], or three times one, chosen for each array by its cost; the divisors between, which
// [Golomb]'s codes have as well, would gain 0.6 % at most.
//
// Wire:
//
//	divisor  1 byte: bits 0-5 j, bit 6 t, bit 7 0: the divisor is 2^j, or 3·2^j if t
//	first    the first key, as unsigned LEB128
//	bits     of each further key, of the gap g = key - last - 1: ⌊g/divisor⌋ ones and a zero; if t, the remainder over
//	         2^j, where 0 is 0, 1 is 10 and 2 is 11; and the lowest j bits of the remainder
//
// [Rice and Plaunt]: https://doi.org/10.1109/TCOM.1971.1090789
// [Golomb]: https://doi.org/10.1109/TIT.1966.1053907
type Rice struct{}

// String implements Coding.
func (Rice) String() string { return "rice" }

// MaxLen implements Coding: no array takes more than with a divisor of 2^63.
func (Rice) MaxLen(n int) int { return 1 + binary.MaxVarintLen64 + bitsLen(n, 65) }

// A divisor is 2^j, or 3·2^j.
type divisor struct {
	j      uint
	thirds bool
}

const thirdsFlag = 1 << 6

// value returns the divisor itself; ok is false if it has more than 64 bits.
func (d divisor) value() (v uint64, ok bool) {
	if d.thirds {
		return 3 << d.j, d.j <= 62
	}
	return 1 << d.j, true
}

// quotients adds up the quotients of the gaps of keys, and, for thirds, the second bits of remainders: all bits except
// the ones that each gap has. The sum is at most the sum of all gaps.
func quotients[K key](d divisor, keys []K) (sum uint64) {
	if d.thirds {
		for i := 1; i < len(keys); i++ {
			t := uint64(keys[i]-keys[i-1]-1) >> d.j
			sum += t/3 + (t%3+2)/3
		}
		return sum
	}
	for i := 1; i < len(keys); i++ {
		sum += uint64(keys[i]-keys[i-1]-1) >> d.j
	}
	return sum
}

// bitsOf returns the bits of the gaps of keys, or the greatest number if they are more.
func bitsOf[G gaps](d divisor, keys G) uint64 {
	perKey := d.j + 1
	if d.thirds {
		perKey++
	}
	sum, carry := bits.Add64(keys.quotients(d), uint64(keys.count()-1)*uint64(perKey), 0)
	return sum | -carry
}

// choose returns the power of two of least cost, or, if that is less, three quarters or one and a half of it, and that
// cost.
func choose[G gaps](keys G) (best divisor, lowest uint64) {
	if keys.count() < 2 {
		return divisor{}, 0
	}
	// The cost of 2^j is convex in j: from j to j+1 it changes by n - Σ⌈⌊g/2^j⌋/2⌉, which grows with j. So from near
	// the mean gap downhill is the way to the least.
	n := uint64(keys.count() - 1)
	mean := (keys.last() - keys.first() - n) / n
	best = divisor{j: uint(max(0, bits.Len64(mean)-1))}
	lowest = bitsOf(best, keys)
	better := func(d divisor) bool {
		cost := bitsOf(d, keys)
		if cost >= lowest {
			return false
		}
		best, lowest = d, cost
		return true
	}
	for best.j < 63 && better(divisor{j: best.j + 1}) {
	}
	for best.j > 0 && better(divisor{j: best.j - 1}) {
	}
	power := best.j
	for j := max(power, 2) - 2; j < power; j++ {
		better(divisor{j: j, thirds: true})
	}
	return best, lowest
}

// Append implements Coding.
func (Rice) Append(dst []byte, keys []uint64) []byte { return appendRice(dst, wide(keys)) }

// Append32 is Append for keys of 32 bits.
func (Rice) Append32(dst []byte, keys []uint32) []byte { return appendRice(dst, narrow(keys)) }

func appendRice[G gaps](dst []byte, keys G) []byte {
	if keys.count() == 0 {
		return dst
	}
	keys.mustAscend()
	d, cost := choose(keys)
	head := byte(d.j)
	if d.thirds {
		head |= thirdsFlag
	}
	dst = binary.AppendUvarint(append(dst, head), keys.first())
	const slack = 16 // bytes that bitio.Put writes beyond
	n := len(dst)
	size := n + int((cost+7)/8)
	dst = slices.Grow(dst, size+slack-n)[:size+slack]
	clear(dst[n:][:8])
	keys.write(d, dst[n:])
	return dst[:size]
}

// write writes the gaps of keys to buf, from bit at, and returns where they end.
func write[K key](d divisor, buf []byte, at uint, keys []K) uint {
	for i := 1; i < len(keys); i++ {
		at = d.put(buf, at, uint64(keys[i]-keys[i-1]-1))
	}
	return at
}

// put writes a gap.
func (d divisor) put(buf []byte, at uint, gap uint64) uint {
	quotient, rest := gap>>(d.j&63), gap&(1<<(d.j&63)-1)
	n := d.j + 1 // the zero that ends the ones, and the remainder
	if d.thirds {
		high := quotient % 3
		quotient /= 3
		second := (high + 1) / 2 // 0 is written as 0, 1 as 10, 2 as 11
		rest |= (high + second) << (d.j & 63)
		n += 1 + uint(second)
	}
	for quotient+uint64(n) > 64 {
		if quotient == 0 { // a divisor of 64 bits, and a second bit
			at, n = bitio.Put(buf, at, 0, n-64), 64
			break
		}
		ones := uint(min(quotient, 32))
		at = bitio.Put(buf, at, 1<<ones-1, ones)
		quotient -= uint64(ones)
	}
	return bitio.Put(buf, at, (1<<quotient-1)<<(n&63)|rest, uint(quotient)+n)
}

// Decode implements Coding.
func (Rice) Decode(keys []uint64, src []byte) (used int, err error) { return decodeRice(keys, src) }

// Decode32 is Decode for keys of 32 bits: others are ErrCorrupt.
func (Rice) Decode32(keys []uint32, src []byte) (used int, err error) { return decodeRice(keys, src) }

func decodeRice[K key](keys []K, src []byte) (used int, err error) {
	var c Rice
	if len(keys) == 0 {
		return 0, nil
	}
	if len(src) < 1 || 8*len(src) < len(keys) {
		return 0, errShort(c, len(src), len(keys))
	}
	d := divisor{j: uint(src[0] &^ thirdsFlag), thirds: src[0]&thirdsFlag != 0}
	v, ok := d.value()
	if d.j > 63 || !ok {
		return 0, corrupt(c, "its divisor is %#02x", src[0])
	}
	first, n := binary.Uvarint(src[1:])
	if n <= 0 {
		return 0, corrupt(c, "its first key is no number of 64 bits")
	}
	keys[0] = K(first)
	if uint64(keys[0]) != first {
		return 0, corrupt(c, "its first key has more than 32 bits")
	}
	head := 1 + n
	r := bitio.NewReader(src[head:])
	maxQuotient := math.MaxUint64 / v
	last := first
	at := uint(0) // where r is
	for i := 1; i < len(keys); i++ {
		n, end := readShort(d, keys[i-1:], src[head:], at)
		r.Skip(end - at)
		if i += n; i == len(keys) {
			break
		}
		last = uint64(keys[i-1])
		quotient, rest := d.read(&r, maxQuotient)
		at = r.At()
		gap := quotient*v + rest
		key := last + 1 + gap
		if key <= last || gap < rest || key > uint64(^K(0)) {
			return 0, errDescent(c, i)
		}
		keys[i], last = K(key), key
	}
	used, ok = r.Close()
	if !ok {
		return 0, errEnd(c, len(keys))
	}
	return head + used, nil
}

// readShort sets keys after the first from the gaps at bit at of src, up to a gap that has a long code or gives no key,
// or is near the end of src. It returns the number of keys, and the end of the last gap's bits.
func readShort[K key](d divisor, keys []K, src []byte, at uint) (n int, end uint) {
	const limit = bitio.PeekMax
	if d.j > limit-3 || len(src) < 8 {
		return 0, at
	}
	maxOnes, last, stop := limit-3-d.j, keys[0], uint(len(src)-8)
	j, low := d.j&63, uint64(1)<<(d.j&63)-1
	for n+1 < len(keys) && at>>3 <= stop {
		next := binary.BigEndian.Uint64(src[at>>3:]) << (at & 7)
		ones := uint(bits.LeadingZeros64(^next))
		if ones > maxOnes {
			break
		}
		size := ones + 1
		quotient := uint64(ones)
		if d.thirds {
			high := next << (size & 63) >> 62 // 0 or 1: its second bit is another's; 2 and 3: a remainder of 1 and 2
			size += 1 + uint(high>>1)
			quotient = 3*quotient + high>>1 + high>>1&high
		}
		size += j
		gap := quotient<<j | next>>((64-size)&63)&low
		key := uint64(last) + 1 + gap
		if last = K(key); uint64(last) != key || key <= gap {
			break
		}
		n++
		keys[n] = last
		at += size
	}
	return n, at
}

// read reads the quotient, at most limit, and the remainder of a gap.
func (d divisor) read(r *bitio.Reader, limit uint64) (quotient, rest uint64) {
	next := r.Peek(bitio.PeekMax) << (64 - bitio.PeekMax)
	ones := uint(bits.LeadingZeros64(^next))
	if n := ones + 1 + d.j; n+2 <= bitio.PeekMax && uint64(ones) <= limit {
		next <<= ones + 1
		if !d.thirds {
			r.Skip(n)
			return uint64(ones), next >> (64 - d.j)
		}
		high := next >> 62 // 0 or 1: its second bit is another's; 2 and 3: a remainder of 1 and 2
		size := 1 + uint(high>>1)
		r.Skip(n + size)
		return uint64(ones), (high>>1)*(high-1)<<d.j | next<<size>>(64-d.j)
	}
	quotient = r.Unary(limit)
	if d.thirds && r.Read(1) == 1 {
		rest = (1 + r.Read(1)) << d.j
	}
	return quotient, rest | r.Read(d.j)
}
