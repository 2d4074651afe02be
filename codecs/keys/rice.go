package keys

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

// Rice writes how many integers are between a key and the one before in the code that suits keys drawn at random: divided
// by a number, the quotient in unary and the remainder in binary. The divisor is a power of two, as in the codes of [Rice
// and Plaunt], or three times one, chosen for each array by what it costs; those between, which [Golomb]'s codes have
// as well, would gain 0.6 % at most.
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

// cost returns the bits of the gaps of keys, or the greatest number if they are more.
func (d divisor) cost(keys []uint64) uint64 {
	quotients := uint64(0) // at most the sum of all gaps, which is below 2^64
	perKey := d.j + 1
	if d.thirds {
		for i := 1; i < len(keys); i++ {
			t := (keys[i] - keys[i-1] - 1) >> d.j
			quotients += t/3 + (t%3+2)/3 // and the second bit of the remainder, if that is not 0
		}
		perKey++
	} else {
		for i := 1; i < len(keys); i++ {
			quotients += (keys[i] - keys[i-1] - 1) >> d.j
		}
	}
	sum, carry := bits.Add64(quotients, uint64(len(keys)-1)*uint64(perKey), 0)
	return sum | -carry
}

// choose returns the power of two of least cost, or, if that is less, three quarters or one and a half of it.
func choose(keys []uint64) divisor {
	if len(keys) < 2 {
		return divisor{}
	}
	// The cost of 2^j is convex in j: from j to j+1 it changes by n - Σ⌈⌊g/2^j⌋/2⌉, which grows with j. So from near
	// the mean gap downhill is the way to the least.
	gaps := uint64(len(keys) - 1)
	mean := (keys[len(keys)-1] - keys[0] - gaps) / gaps
	best := divisor{j: uint(max(0, bits.Len64(mean)-1))}
	least := best.cost(keys)
	better := func(d divisor) bool {
		cost := d.cost(keys)
		if cost >= least {
			return false
		}
		best, least = d, cost
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
	return best
}

// Append implements Coding.
func (Rice) Append(dst []byte, keys []uint64) []byte {
	if len(keys) == 0 {
		return dst
	}
	mustAscend(keys)
	d := choose(keys)
	if d.thirds {
		dst = append(dst, byte(d.j|thirdsFlag))
	} else {
		dst = append(dst, byte(d.j))
	}
	dst = binary.AppendUvarint(dst, keys[0])
	w := bitio.NewWriter(dst)
	for i := 1; i < len(keys); i++ {
		d.write(&w, keys[i]-keys[i-1]-1)
	}
	return w.Bytes()
}

// write writes a gap.
func (d divisor) write(w *bitio.Writer, gap uint64) {
	quotient, rest := gap>>d.j, gap&(1<<d.j-1)
	n := d.j + 1 // the zero that ends the ones, and the remainder
	if d.thirds {
		high := quotient % 3
		quotient /= 3
		second := (high + 1) / 2 // 0 is written as 0, 1 as 10, 2 as 11
		rest |= (high + second) << d.j
		n += 1 + uint(second)
	}
	if quotient+uint64(n) <= 64 {
		w.Write((1<<quotient-1)<<n|rest, uint(quotient)+n)
		return
	}
	for ; quotient > 32; quotient -= 32 {
		w.Write(math.MaxUint32, 32)
	}
	w.Write(1<<quotient-1, uint(quotient))
	w.Write(rest, n)
}

// Decode implements Coding.
func (c Rice) Decode(keys []uint64, src []byte) (used int, err error) {
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
	keys[0] = first
	head := 1 + n
	r := bitio.NewReader(src[head:])
	mostQuotient := math.MaxUint64 / v
	last := first
	for i := 1; i < len(keys); i++ {
		quotient, rest := d.read(&r, mostQuotient)
		gap := quotient*v + rest
		key := last + 1 + gap
		if key <= last || gap < rest {
			return 0, errDescent(c, i)
		}
		keys[i], last = key, key
	}
	used, ok = r.Close()
	if !ok {
		return 0, errEnd(c, len(keys))
	}
	return head + used, nil
}

// read reads the quotient, at most most, and the remainder of a gap.
func (d divisor) read(r *bitio.Reader, most uint64) (quotient, rest uint64) {
	next := r.Peek(bitio.PeekMax) << (64 - bitio.PeekMax)
	ones := uint(bits.LeadingZeros64(^next))
	if n := ones + 1 + d.j; n+2 <= bitio.PeekMax && uint64(ones) <= most {
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
	quotient = r.Unary(most)
	if d.thirds && r.Read(1) == 1 {
		rest = (1 + r.Read(1)) << d.j
	}
	return quotient, rest | r.Read(d.j)
}
