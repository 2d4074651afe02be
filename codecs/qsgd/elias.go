package qsgd

import (
	"errors"
	"math/bits"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

// omega returns the Elias omega code of k, at least 1, in the lowest n bits of code.
func omega(k uint) (code uint64, n uint) {
	n = 1 // the last bit, 0
	for k > 1 {
		digits := uint(bits.Len(k))
		code |= uint64(k) << n
		n += digits
		k = digits - 1
	}
	return code, n
}

// readOmega returns a number of at most limit, or 0 if there is a larger one.
func readOmega(r *bitio.Reader, limit uint) uint {
	k := uint(1)
	for r.Read(1) == 1 {
		if k >= uint(bits.Len(limit)) {
			return 0 // k digits more make more than limit
		}
		k = 1<<k | uint(r.Read(k))
	}
	if k > limit {
		return 0
	}
	return k
}

// eliasLen is the most bytes that n levels of at most s take: none has a gap, and all are the highest. A gap of k costs
// less than k-1 levels more.
func eliasLen(n, s int) int {
	_, highest := omega(uint(s))
	return (1 + n*(2+int(highest)) + 7) / 8
}

// appendElias appends levels as gaps, signs and magnitudes.
func appendElias(dst []byte, levels []int8) []byte {
	w := bitio.NewWriter(dst)
	last := -1
	for i, l := range levels {
		if l == 0 {
			continue
		}
		code, n := omega(uint(i - last))
		last = i
		w.Write(code, n)
		sign := uint64(0)
		if l < 0 {
			sign, l = 1, -l
		}
		code, n = omega(uint(l))
		w.Write(sign<<n|code, n+1)
	}
	code, n := omega(uint(len(levels) - last))
	w.Write(code, n)
	return w.Bytes()
}

var errElias = errors.New("its gaps and levels do not fit the number of values")

// readElias sets levels from the code with which src begins, and returns the rest of src.
func readElias(levels []int8, src []byte, s int) (rest []byte, err error) {
	clear(levels)
	r := bitio.NewReader(src)
	last := -1
	for {
		gap := readOmega(&r, uint(len(levels)-last))
		if gap == 0 {
			return nil, errElias
		}
		if last += int(gap); last == len(levels) {
			break
		}
		negative := r.Read(1) == 1
		l := readOmega(&r, uint(s))
		if l == 0 {
			return nil, errElias
		}
		levels[last] = int8(l)
		if negative {
			levels[last] = -int8(l)
		}
	}
	used, ok := r.Close()
	if !ok {
		return nil, errElias
	}
	return src[used:], nil
}
