package threelc

import (
	"encoding/binary"
	"sync"
)

// Forms: the byte after a block's M where the coder is Entropy. 0 to 5 are a model's most; with 0 the block ends there,
// for it has only zeros.
const formRuns = 6

const (
	formLen  = 1
	modelLen = 5 // bytes of a model's three parameters
)

// powers are the weights of a quartic byte's digits, the digit of the first part of the block first.
var powers = [5]byte{81, 27, 9, 3, 1}

// An entropyCoder is the memory that a block takes while it is coded.
type entropyCoder struct {
	runs   []byte // lead bytes, and quartic ones
	table  [256]interval
	symbol [total]byte
}

var entropyCoders = sync.Pool{New: func() any { return new(entropyCoder) }}

// room returns memory for the quartic bytes of n values, until the next call.
func (c *entropyCoder) room(n int) (packed []byte) {
	need := lead + quarticLen(n)
	if cap(c.runs) < need {
		c.runs = make([]byte, need)
	}
	c.runs = c.runs[:need]
	return c.runs[lead:]
}

// append writes the form and the rest of a block of n values to dst, which must have formLen bytes more than packed,
// and returns their length. packed is c's room and is changed.
func (c *entropyCoder) append(dst, packed []byte, n int) int {
	p := len(packed)
	for i := n; i < 5*p; i++ {
		packed[i%p] += powers[i/p] // zeros beyond the last value: they cost less
	}
	m, zeros := fit(packed)
	if m.maxNonzero == 0 {
		dst[0] = 0
		return formLen
	}
	m.intervals(&c.table)
	body := dst[formLen:]
	coded := 0
	if len(body) > modelLen {
		coded = copy(body[modelLen:], ransEncode(body[modelLen:], packed, &c.table))
	}
	if minRuns := p - zeros + (zeros+maxRun-1)/maxRun; coded == 0 || modelLen+coded > minRuns {
		if runs := c.runs[:shorten(c.runs, packed)]; coded == 0 || modelLen+coded > len(runs) {
			dst[0] = formRuns
			return formLen + copy(body, runs)
		}
	}
	dst[0] = byte(m.maxNonzero)
	binary.LittleEndian.PutUint16(body, m.none)
	binary.LittleEndian.PutUint16(body[2:], m.density)
	body[4] = m.positive
	return formLen + modelLen + coded
}

// unpack sets x from the form and the rest of a block, with which src begins, times M, and returns their length; ok is
// false if src does not begin so.
func (c *entropyCoder) unpack(x []float32, src []byte, M float32) (used int, ok bool) {
	if len(src) < formLen || src[0] > formRuns {
		return 0, false
	}
	form, src := int(src[0]), src[formLen:]
	switch form {
	case 0:
		clear(x)
		return formLen, true
	case formRuns:
		used, ok = unpack(x, src, M)
		return formLen + used, ok
	}
	if len(src) < modelLen {
		return 0, false
	}
	m := model{binary.LittleEndian.Uint16(src), binary.LittleEndian.Uint16(src[2:]), src[4], form}
	if !m.intervals(&c.table) {
		return 0, false
	}
	packed := c.room(len(x))
	used, ok = ransDecode(packed, src[modelLen:], &c.table, c.symbols())
	if !ok {
		return 0, false
	}
	_, ok = unpack(x, packed, M) // quartic bytes are runs of one
	return formLen + modelLen + used, ok
}

// symbols returns the byte of each number in c.table that does not belong to five zeros.
func (c *entropyCoder) symbols() []byte {
	zeros := c.table[fiveZeros].freq
	symbol := c.symbol[:total-zeros]
	for b, s := range c.table[:firstRun] {
		if b != fiveZeros && s.freq > 0 {
			fill(symbol[s.start-zeros:][:s.freq], byte(b))
		}
	}
	return symbol
}

// fill sets dst, which is not empty, to b.
func fill(dst []byte, b byte) {
	dst[0] = b
	for done := 1; done < len(dst); done *= 2 {
		copy(dst[done:], dst[:done])
	}
}
