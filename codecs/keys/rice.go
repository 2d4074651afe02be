package keys

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

// Rice writes how many integers are between a key and the one before in the code that suits keys drawn at random: with a
// divisor, the quotient in unary and the remainder in binary. The divisor is a power of two ([Rice]'s codes) or three times one,
// chosen for each array by what it costs; those between, which [Golomb]'s codes can have, gain less than 1 %.
//
// Wire:
//
//	divisor  1 byte: bits 0-5 j, bit 6 t, bit 7 0: the divisor is 2^j, or 3·2^j if t
//	first    the first key, as unsigned LEB128
//	bits     of each further key, of the gap g = key - last - 1: ⌊g/divisor⌋ ones and a zero; if t, the remainder over
//	         2^j, where 0 is 0, 1 is 10 and 2 is 11; and the lowest j bits of the remainder
//
// [Rice]: https://doi.org/10.1109/TCOM.1971.1090789
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

// cost returns the bits of the gaps of keys.
func (d divisor) cost(keys []uint64) (sum float64) {
	// Sums of up to 2^64-1 quotients overflow no float64; where costs are as large as to be inexact, all are alike.
	if d.thirds {
		for i := 1; i < len(keys); i++ {
			t := (keys[i] - keys[i-1] - 1) >> d.j
			sum += float64((t + 2) / 3) // quotient, and the second bit of the remainder if that is not 0
		}
		return sum + float64(len(keys)-1)*float64(d.j+2)
	}
	for i := 1; i < len(keys); i++ {
		sum += float64((keys[i] - keys[i-1] - 1) >> d.j)
	}
	return sum + float64(len(keys)-1)*float64(d.j+1)
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
	for _, step := range [...]int{1, -1} {
		for {
			next := divisor{j: uint(int(best.j) + step)}
			if next.j > 63 {
				break
			}
			cost := next.cost(keys)
			if cost >= least {
				break
			}
			best, least = next, cost
		}
	}
	for j := max(2, best.j) - 2; j+1 <= best.j; j++ {
		if d := (divisor{j, true}); d.cost(keys) < least {
			best, least = d, d.cost(keys)
			break
		}
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
		gap := keys[i] - keys[i-1] - 1
		t := gap >> d.j
		low := gap & (1<<d.j - 1)
		if !d.thirds {
			writeOnes(&w, t)
			w.Write(low, d.j+1) // its highest bit is the zero that ends the ones
			continue
		}
		writeOnes(&w, t/3)
		switch t % 3 { // the zero that ends the ones, and the remainder
		case 0:
			w.Write(0b00, 2)
		case 1:
			w.Write(0b010, 3)
		default:
			w.Write(0b011, 3)
		}
		w.Write(low, d.j)
	}
	return w.Bytes()
}

func writeOnes(w *bitio.Writer, n uint64) {
	for ; n > 32; n -= 32 {
		w.Write(math.MaxUint32, 32)
	}
	w.Write(1<<n-1, uint(n))
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
		gap := r.Unary(mostQuotient) * v
		rest := uint64(0)
		if d.thirds && r.Read(1) == 1 {
			rest = (1 + r.Read(1)) << d.j
		}
		rest |= r.Read(d.j)
		key := last + 1 + gap + rest
		if key <= last || gap+rest < gap {
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
