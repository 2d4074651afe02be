package gspar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
)

// The dense form writes q̃ ∈ {0, ±1, 2}^d in an asymmetric numeral system, rANS ([Duda]): all of it is one number,
// kept between 2^31 and 2^63 by moving its low 32 bits to the code and back.
//
// With frequencies f_l that add up to M = 2^16, and F_l the sum of the frequencies before l in the order 0, 1, -1, 2,
// from the last of q̃ to the first, x becomes ⌊x/f_l⌋·M + x mod f_l + F_l, after its low 32 bits have gone to the code
// if x >= 2^47·f_l. It begins as 2^31. The code is x at the end, 8 bytes, and the words, the last that went first: so
// decoding reads it forwards, and must end with x = 2^31.
//
// f_l is ⌊d_l·M/d⌋, where l occurs d_l times, but at least 1 if d_l is not 0, and 0 if it is; the difference of their
// sum to M is added to the f_l of the most frequent l, of equal ones the first.
//
// [Duda]: https://arxiv.org/abs/1311.2540

const (
	symbols = 4 // 0, 1, -1 and 2 are numbers 0 to 3

	probBits = 16
	probOne  = 1 << probBits // M
	minX     = 1 << 31       // of x
	wordBits = 32
)

// A model has the count of each symbol, and its frequency of M.
type model struct {
	counts [symbols]uint32
	freq   [symbols]uint32
	start  [symbols + 1]uint32
}

// newModel returns the model of counts, which add up to d > 0.
func newModel(counts [symbols]uint32, d int) model {
	m := model{counts: counts}
	mostFrequent, sum := 0, uint32(0)
	for l, c := range counts {
		if c > 0 {
			m.freq[l] = max(1, uint32(uint64(c)*probOne/uint64(d)))
		}
		if c > counts[mostFrequent] {
			mostFrequent = l
		}
		sum += m.freq[l]
	}
	m.freq[mostFrequent] += probOne - sum // also if that is "negative"
	for l, f := range m.freq {
		m.start[l+1] = m.start[l] + f
	}
	return m
}

// put returns x with symbol l in it, and words with the bits of x that had to move there.
func (m *model) put(x uint64, l byte, words []uint32) (uint64, []uint32) {
	f := uint64(m.freq[l])
	if x >= minX>>probBits<<wordBits*f {
		words = append(words, uint32(x))
		x >>= wordBits
	}
	return x/f<<probBits + x%f + uint64(m.start[l]), words
}

// get returns the symbol in x, and x without it.
func (m *model) get(x uint64) (l byte, rest uint64) {
	slot := uint32(x & (probOne - 1))
	for slot >= m.start[l+1] {
		l++
	}
	return l, uint64(m.freq[l])*(x>>probBits) + uint64(slot-m.start[l])
}

// entropy returns Σ d_l log2(d/d_l), in bits.
func (q *sparsified) entropy() float64 {
	bits := 0.0
	for _, c := range q.counts() {
		if c > 0 {
			bits += float64(c) * math.Log2(float64(q.d)/float64(c))
		}
	}
	return bits
}

// counts returns the number of times that q̃ has each symbol.
func (q *sparsified) counts() (n [symbols]uint32) {
	for _, negative := range q.negative {
		if negative {
			n[2]++
		}
	}
	n[3] = uint32(len(q.A))
	n[1] = uint32(len(q.B)) - n[2]
	n[0] = uint32(q.d) - n[1] - n[2] - n[3]
	return n
}

// appendDense appends q̃ and the values of QA.
func (q *sparsified) appendDense(dst []byte, p *sparse.Picks) []byte {
	dst = q.appendHeader(dst, dense)
	counts := q.counts()
	m := newModel(counts, q.d)
	p.Words = p.Words[:0]
	x := uint64(minX)
	a, b := len(q.A)-1, len(q.B)-1
	for i := q.d - 1; i >= 0; i-- {
		l := byte(0)
		switch {
		case a >= 0 && q.A[a] == uint32(i):
			l, a = 3, a-1
		case b >= 0 && q.B[b] == uint32(i):
			l = 1
			if q.negative[b] {
				l = 2
			}
			b--
		}
		x, p.Words = m.put(x, l, p.Words)
	}
	for _, l := range [...]int{2, 1, 3} {
		dst = binary.AppendUvarint(dst, uint64(counts[l]))
	}
	dst = binary.AppendUvarint(dst, uint64(len(p.Words)))
	dst = binary.LittleEndian.AppendUint64(dst, x)
	for i := len(p.Words) - 1; i >= 0; i-- {
		dst = binary.LittleEndian.AppendUint32(dst, p.Words[i])
	}
	return q.appendValues(dst)
}

// decodeDense sets x from q̃ and the values of QA, with which src begins, and returns the rest of src.
func decodeDense(x []float32, src []byte, unit float32, p *sparse.Picks) (rest []byte, err error) {
	m, words, src, err := decodeModel(len(x), src)
	if err != nil {
		return nil, err
	}
	if len(src) < 8+4*words {
		return nil, fmt.Errorf("it ends after %d bytes of the code's %d", len(src), 8+4*words)
	}
	code, src := src[:8+4*words], src[8+4*words:]
	state, code := binary.LittleEndian.Uint64(code), code[8:]
	p.Keys = p.Keys[:0]
	var found [symbols]uint32
	delivered := [symbols]float32{0, unit, -unit, 0}
	for i := range x {
		var l byte
		l, state = m.get(state)
		if state < minX {
			if len(code) == 0 {
				return nil, errors.New("the code ends too early")
			}
			state = state<<wordBits | uint64(binary.LittleEndian.Uint32(code))
			code = code[4:]
		}
		found[l]++
		if l == 3 {
			p.Keys = append(p.Keys, uint32(i))
		}
		x[i] = delivered[l]
	}
	if state != minX || len(code) > 0 || found != m.counts {
		return nil, errors.New("the code is not of as many values")
	}
	return sparse.SetValues(x, src, wireType, p)
}

// decodeModel reads the counts, and the number of words in the code of d values.
func decodeModel(d int, src []byte) (m model, words int, rest []byte, err error) {
	var read [4]uint64
	for i := range read {
		v, used := binary.Uvarint(src)
		if used <= 0 || v > uint64(d) {
			return m, 0, nil, errors.New("a count is more than there are values, or missing")
		}
		read[i], src = v, src[used:]
	}
	if read[0]+read[1]+read[2] > uint64(d) {
		return m, 0, nil, fmt.Errorf("it has %d values of %d", read[0]+read[1]+read[2], d)
	}
	zeros := uint64(d) - read[0] - read[1] - read[2]
	return newModel([symbols]uint32{uint32(zeros), uint32(read[1]), uint32(read[0]), uint32(read[2])}, d), int(read[3]), src, nil
}
