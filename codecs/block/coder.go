package block

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/arith"
	"github.com/gradproxy/gradproxy/tensor"
)

func (m method) NewEncoder(n int) (codecs.ValueEncoder, error) { return &encoder{method: m, n: n}, nil }
func (m method) NewDecoder(n int) (codecs.ValueDecoder, error) { return decoder{m, n}, nil }

type encoder struct {
	method
	n          int
	largest    []float32 // scratch: the largest magnitude of each block, with feedback
	sum, value []float32 // scratch for a block that takes the long way
}

func (e *encoder) Append(dst []byte, src []float32) ([]byte, error) {
	return e.append(dst, src, nil, tensor.Float32)
}

// AppendFeedback implements codecs.Fused.
func (e *encoder) AppendFeedback(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error) {
	if len(residual) != e.n {
		panic(fmt.Sprintf("block: a residual of %d values for an encoder of %d", len(residual), e.n))
	}
	return e.append(dst, src, residual, d)
}

// append encodes src, or src+residual if there is one.
func (e *encoder) append(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error) {
	if len(src) != e.n {
		panic(fmt.Sprintf("block: %d values for an encoder of %d", len(src), e.n))
	}
	begin, end := len(dst), len(dst)+e.MaxEncodedLen(e.n)
	out := slices.Grow(dst, end-begin)[:end]
	if residual != nil {
		e.findMax(src, residual)
		// All scales come first, since a residual must not be touched if a later block is unsuited.
		if err := e.checkScales(); err != nil {
			return dst, err
		}
	}
	to := out[begin:]
	for i, from := 0, 0; from < e.n; i, from = i+1, from+e.block {
		x := src[from:min(from+e.block, e.n)]
		var largest float32
		if residual == nil {
			largest = absmax.Of(x)
			if err := e.checkScale(i, largest); err != nil {
				return dst, err
			}
		} else {
			largest = e.largest[i]
		}
		scale := scaleOf(largest, e.levels())
		binary.LittleEndian.PutUint32(to, math.Float32bits(scale))
		codes := to[scaleLen:e.blockLen(len(x))]
		to = to[e.blockLen(len(x)):]
		switch {
		case residual == nil:
			e.quantize(codes, x, scale)
		case d == tensor.BFloat16 && (scale == 0 || scale >= smallestNormal) && quantizeSumBrainTiles(e.bits, codes, x, residual[from:from+len(x)], inverse(scale), scale):
		case scale > 0 && scale < smallestNormal || d.Size() < 4:
			e.quantizeLong(codes, x, residual[from:], scale, d)
		case e.bits == 4:
			quantizeSum4(codes, x, residual[from:], inverse(scale), scale)
		default:
			quantizeSum8(codes, x, residual[from:], inverse(scale), scale)
		}
	}
	return out, nil
}

// findMax sets largest.
func (e *encoder) findMax(src, residual []float32) {
	if e.largest == nil {
		e.largest = make([]float32, (e.n+e.block-1)/e.block)
	}
	absmax.EachOfSum(e.largest, src, residual, e.block)
}

// checkScales returns an error if the scale of a block is too large. largest has the largest magnitudes of the blocks.
func (e *encoder) checkScales() error {
	for i, largest := range e.largest {
		if err := e.checkScale(i, largest); err != nil {
			return err
		}
	}
	return nil
}

// checkScale does so for block i.
func (e *encoder) checkScale(i int, largest float32) error {
	if !(scaleOf(largest, e.levels()) <= e.maxScale()) {
		from, to := i*e.block, min((i+1)*e.block, e.n)
		return fmt.Errorf("%w: %s: the largest of values %d to %d is %v", codecs.ErrUnsuited, e.name(), from, to-1, largest)
	}
	return nil
}

// maxScale is the largest scale at which every code is finite.
func (m method) maxScale() float32 { return math.MaxFloat32 / (m.levels() + 1) }

func getScale(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// quantize sets codes to x in units of scale.
func (m method) quantize(codes []byte, x []float32, scale float32) {
	switch {
	case scale > 0 && scale < smallestNormal:
		m.quantizeTiny(codes, x, scale)
	case m.bits == 4:
		quantize4(codes, x, inverse(scale))
	default:
		quantize8(codes, x, inverse(scale))
	}
}

func (m method) quantizeTiny(codes []byte, x []float32, scale float32) {
	if m.bits == 8 {
		for i, T := range x {
			codes[i] = byte(roundTiny(T, scale))
		}
		return
	}
	for j := range codes {
		high := 0
		if k := len(codes) + j; k < len(x) {
			high = roundTiny(x[k], scale)
		}
		codes[j] = byte(roundTiny(x[j], scale) + 8 | (high+8)<<4)
	}
}

// dequantize sets x from codes.
func (m method) dequantize(x []float32, codes []byte, scale float32) {
	if m.bits == 4 {
		dequantize4(x, codes, scale)
	} else {
		dequantize8(x, codes, scale)
	}
}

// quantizeLong stands in for quantizeSum8 and quantizeSum4 where the scale is subnormal or elements round the delivered
// value: it sums, quantizes, dequantizes, rounds and subtracts, one after another, in the cache.
func (e *encoder) quantizeLong(codes []byte, x, residual []float32, scale float32, d tensor.DType) {
	if e.sum == nil {
		both := make([]float32, 2*min(e.block, e.n))
		e.sum, e.value = both[:len(both)/2], both[len(both)/2:]
	}
	sum, value := e.sum[:len(x)], e.value[:len(x)]
	arith.Add(sum, x, residual)
	e.quantize(codes, sum, scale)
	e.dequantize(value, codes, scale)
	tensor.Round(value, d)
	arith.Sub(residual[:len(x)], sum, value)
}

type decoder struct {
	method
	n int
}

func (d decoder) Decode(dst []float32, src []byte) error {
	if len(dst) != d.n {
		panic(fmt.Sprintf("block: %d values for a decoder of %d", len(dst), d.n))
	}
	if want := d.MaxEncodedLen(d.n); len(src) != want {
		return fmt.Errorf("%w: %s: %d bytes; %d values have %d", codecs.ErrCorrupt, d.name(), len(src), d.n, want)
	}
	for from := 0; from < d.n; from += d.block {
		x := dst[from:min(from+d.block, d.n)]
		scale := getScale(src)
		if !(scale <= d.maxScale()) || math.Signbit(float64(scale)) {
			return fmt.Errorf("%w: %s: the scale of values %d to %d is %v", codecs.ErrCorrupt, d.name(), from, from+len(x)-1, scale)
		}
		d.dequantize(x, src[scaleLen:d.blockLen(len(x))], scale)
		src = src[d.blockLen(len(x)):]
	}
	return nil
}
