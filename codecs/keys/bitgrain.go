package keys

import (
	"math/bits"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

const (
	defaultL = 2 // FastSGD, section 4.2: "recommended to set as 2"
	maxL     = 6
)

// BitGrain writes each delta in one of 2^l lengths, of bits, and before it a flag of l bits that says which (FastSGD's
// GK-Encoder, Algorithm 2). The lengths divide M, the length of the largest delta, evenly: for l = 2 they are M/4,
// M/2, 3M/4 and M, rounded up.
//
// Wire:
//
//	M     1 byte: 0 to 64
//	bits  of each key the flag f, and the delta in ⌈(f+1)·M/2^l⌉ bits, the fewest that hold it
type BitGrain struct {
	L int // bits of the length flag, 1 to 6; 0 is 2. It is not on the wire.
}

// l returns L or its default. It panics if L is out of its bounds.
func (c BitGrain) l() uint {
	switch {
	case c.L == 0:
		return defaultL
	case c.L < 1 || c.L > maxL:
		panic("keys: BitGrain.L is not in 1 to 6")
	}
	return uint(c.L)
}

// String implements Coding.
func (c BitGrain) String() string {
	return codecs.FormatText("bit-grain", codecs.Param{Name: "l", Value: int(c.l()), Def: defaultL})
}

// MaxLen implements Coding.
func (c BitGrain) MaxLen(n int) int { return 1 + bitsLen(n, 64+int(c.l())) }

// bitsLen returns the bytes that n codes of at most maxBits bits take.
func bitsLen(n, maxBits int) int { return n/8*maxBits + (n%8*maxBits+7)/8 }

// lengths returns the bits that each flag stands for.
func (c BitGrain) lengths(M uint) (of [1 << maxL]uint8) {
	levels := uint(1) << c.l()
	for flag := range levels {
		of[flag] = uint8(((flag+1)*M + levels - 1) / levels)
	}
	return of
}

// Append implements Coding.
func (c BitGrain) Append(dst []byte, keys []uint64) []byte {
	if len(keys) == 0 {
		return dst
	}
	l := c.l()
	M := uint(bits.Len64(maxDelta(keys)))
	lengths := c.lengths(M)
	var flags [65]uint8 // by the length of a delta in binary
	for n, flag := uint(0), uint8(0); n <= M; n++ {
		for uint(lengths[flag]) < n {
			flag++
		}
		flags[n] = flag
	}
	w := bitio.NewWriter(append(dst, byte(M)))
	last := uint64(0)
	for _, k := range keys {
		delta := k - last
		last = k
		flag := flags[bits.Len64(delta)]
		if n := uint(lengths[flag]); l+n <= 64 {
			w.Write(uint64(flag)<<n|delta, l+n)
		} else {
			w.Write(uint64(flag), l)
			w.Write(delta, n)
		}
	}
	return w.Bytes()
}

// Decode implements Coding.
func (c BitGrain) Decode(keys []uint64, src []byte) (used int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	l := c.l()
	if len(src) < 1 || 8*(len(src)-1)/int(l) < len(keys) {
		return 0, errShort(c, len(src), len(keys))
	}
	M := uint(src[0])
	if M > 64 {
		return 0, corrupt(c, "its deltas have %d bits", M)
	}
	lengths := c.lengths(M)
	r := bitio.NewReader(src[1:])
	last := uint64(0)
	for i := range keys {
		var delta uint64
		if l+M <= bitio.PeekMax {
			next := r.Peek(bitio.PeekMax) << (64 - bitio.PeekMax)
			n := uint(lengths[next>>(64-l)])
			delta = next << l >> (64 - n)
			r.Skip(l + n)
		} else {
			delta = r.Read(uint(lengths[r.Read(l)]))
		}
		key := last + delta
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
