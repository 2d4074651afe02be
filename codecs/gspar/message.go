package gspar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	hybrid byte = iota
	dense
)

const (
	wireType  = tensor.Float32 // b is 32 bits
	headerLen = 1 + 4          // form and 1/λ
)

func (q *sparsified) appendHeader(dst []byte, form byte) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, form), math.Float32bits(q.unit))
}

// appendShorter appends the shorter of the two forms, the hybrid one if they are equal. p is scratch.
func (q *sparsified) appendShorter(dst []byte, p *sparse.Picks) []byte {
	begin := len(dst)
	dst = q.appendHybrid(dst, p)
	// The entropy says whether the dense form is worth trying, give or take a percent. (The trial may depend on
	// the processor's logarithm; the message does not.)
	if entropy := headerLen + q.entropy()/8 + 4*float64(len(q.A)); 0.99*entropy-16 > float64(len(dst)-begin) {
		return dst
	}
	p.Bytes = q.appendDense(p.Bytes[:0], p)
	if len(p.Bytes) < len(dst)-begin {
		dst = append(dst[:begin], p.Bytes...)
	}
	return dst
}

// appendHybrid appends QA (index, value) and QB (1/λ once, index, sign).
func (q *sparsified) appendHybrid(dst []byte, p *sparse.Picks) []byte {
	dst = q.appendHeader(dst, hybrid)
	dst = q.appendValues(sparse.AppendKeys(dst, q.A))
	dst = sparse.AppendKeys(dst, q.B)
	signs := len(dst)
	dst = append(dst, make([]byte, (len(q.B)+7)/8)...)
	for i, negative := range q.negative {
		if negative {
			dst[signs+i/8] |= 1 << (i % 8)
		}
	}
	return dst
}

// appendValues appends the values of QA, which are g's own.
func (q *sparsified) appendValues(dst []byte) []byte {
	for _, v := range q.values {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

// decode sets x from the message with which src begins and returns the rest of src.
func decode(x []float32, src []byte, p *sparse.Picks) (rest []byte, err error) {
	if len(src) < headerLen {
		return nil, errors.New("it ends before 1/λ does")
	}
	form, unit := src[0], math.Float32frombits(binary.LittleEndian.Uint32(src[1:]))
	if !magnitude.Finite(math.Float32bits(unit)) { // the sign is beyond infinity
		return nil, fmt.Errorf("1/λ is %v", unit)
	}
	switch form {
	case hybrid:
		return decodeHybrid(x, src[headerLen:], unit, p)
	case dense:
		return decodeDense(x, src[headerLen:], unit, p)
	}
	return nil, fmt.Errorf("its form is %d; there are %d and %d", form, hybrid, dense)
}

func decodeHybrid(x []float32, src []byte, unit float32, p *sparse.Picks) (rest []byte, err error) {
	if src, err = sparse.DecodePairs(x, src, wireType, p); err != nil {
		return nil, err
	}
	if p.Keys, src, err = sparse.DecodeKeys(p.Keys[:0], len(x), src); err != nil {
		return nil, err
	}
	signs := (len(p.Keys) + 7) / 8
	if len(src) < signs {
		return nil, fmt.Errorf("it ends after %d bytes of %d with signs", len(src), signs)
	}
	for i, key := range p.Keys {
		if x[key] != 0 {
			return nil, fmt.Errorf("value %d is there twice", key)
		}
		x[key] = unit
		if src[i/8]>>(i%8)&1 != 0 {
			x[key] = -unit
		}
	}
	if used := len(p.Keys) % 8; used > 0 && src[signs-1]>>used != 0 {
		return nil, errors.New("there are more signs than values")
	}
	return src[signs:], nil
}
