package threelc

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/tensor"
)

func (m method) NewEncoder(n int) (codecs.ValueEncoder, error) {
	return &encoder{method: m, n: n, multiplier: float32(m.s), scales: make([]float32, 0, (n+m.block-1)/m.block)}, nil
}

func (m method) NewDecoder(n int) (codecs.ValueDecoder, error) { return decoder{m, n}, nil }

type encoder struct {
	method
	n          int
	multiplier float32   // s of the next encoding
	scales     []float32 // M of each block, while Append runs
	lens       []int     // bytes of each block then
}

// SetSparsity implements codecs.Adaptive.
func (e *encoder) SetSparsity(s float32) {
	if !(s >= 1 && s <= float32(maxS)) {
		panic(fmt.Sprintf("threelc: a sparsity multiplier of %v", s))
	}
	e.multiplier = s
}

func (e *encoder) Append(dst []byte, src []float32) ([]byte, error) {
	return e.append(dst, src, nil, tensor.Float32)
}

// AppendFeedback implements codecs.Fused.
func (e *encoder) AppendFeedback(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error) {
	if len(residual) != e.n {
		panic(fmt.Sprintf("threelc: a residual of %d values for an encoder of %d", len(residual), e.n))
	}
	return e.append(dst, src, residual, d)
}

// append encodes src, or src+residual if there is one.
func (e *encoder) append(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error) {
	if len(src) != e.n {
		panic(fmt.Sprintf("threelc: %d values for an encoder of %d", len(src), e.n))
	}
	// All scales come first, since a residual must not be touched if a later block is unsuited.
	if err := e.findScales(src, residual); err != nil {
		return dst, err
	}
	begin := len(dst)
	dst = slices.Grow(dst, e.MaxEncodedLen(e.n)+lead)
	dst = dst[:cap(dst)]
	var coder *entropyCoder
	if e.coder == Entropy {
		coder = entropyCoders.Get().(*entropyCoder)
		defer entropyCoders.Put(coder)
	}
	// The last block comes first: a core's cache still has it, and often the one before. Each goes where it would begin
	// if the blocks before it took as many bytes as they can.
	e.lens = slices.Grow(e.lens[:0], len(e.scales))[:len(e.scales)]
	var behind [lead]byte // begins the block after it, where the quartic bytes of a block end
	for b, M := range slices.Backward(e.scales) {
		from := b * e.block
		to := min(from+e.block, e.n)
		w := begin + b*e.blockLen(e.block)
		next := dst[w+e.blockLen(to-from):]
		copy(behind[:], next)
		binary.LittleEndian.PutUint32(dst[w:], math.Float32bits(M))
		runs := dst[w+scaleLen : w+scaleLen+lead+quarticLen(to-from)]
		packed := runs[lead:]
		if coder != nil {
			packed = coder.room(to - from)
		}
		if residual == nil {
			quantize(packed, src[from:to], threshold(M))
		} else {
			delivered := [1]float32{M}
			tensor.Round(delivered[:], d)
			quantizeSum(packed, src[from:to], residual[from:to], threshold(M), delivered[0])
		}
		if coder != nil {
			e.lens[b] = scaleLen + coder.append(runs[:formLen+len(packed)], packed, to-from)
		} else {
			e.lens[b] = scaleLen + shorten(runs, packed)
		}
		copy(next, behind[:])
	}
	w := begin
	for b, n := range e.lens {
		w += copy(dst[w:], dst[begin+b*e.blockLen(e.block):][:n])
	}
	return dst[:w], nil
}

func (e *encoder) findScales(src, residual []float32) error {
	e.scales = e.scales[:0]
	for from := 0; from < e.n; from += e.block {
		to := min(from+e.block, e.n)
		var largest float32
		if residual == nil {
			largest = absmax.Of(src[from:to])
		} else {
			largest = absmax.OfSum(src[from:to], residual[from:to])
		}
		M := scale(largest, e.multiplier)
		if !(M <= math.MaxFloat32) {
			return fmt.Errorf("%w: 3lc: the scale of values %d to %d is %v", codecs.ErrUnsuited, from, to-1, M)
		}
		e.scales = append(e.scales, M)
	}
	return nil
}

type decoder struct {
	method
	n int
}

func (d decoder) Decode(dst []float32, src []byte) error {
	if len(dst) != d.n {
		panic(fmt.Sprintf("threelc: %d values for a decoder of %d", len(dst), d.n))
	}
	var coder *entropyCoder
	if d.coder == Entropy {
		coder = entropyCoders.Get().(*entropyCoder)
		defer entropyCoders.Put(coder)
	}
	for from := 0; from < d.n; from += d.block {
		to := min(from+d.block, d.n)
		if len(src) < scaleLen {
			return fmt.Errorf("%w: 3lc: it ends before the scale of values %d to %d", codecs.ErrCorrupt, from, to-1)
		}
		bits := binary.LittleEndian.Uint32(src)
		if bits > math.Float32bits(math.MaxFloat32) {
			return fmt.Errorf("%w: 3lc: the scale of values %d to %d is %v", codecs.ErrCorrupt, from, to-1, math.Float32frombits(bits))
		}
		var used int
		var ok bool
		if M, body := math.Float32frombits(bits), src[scaleLen:]; coder != nil {
			used, ok = coder.unpack(dst[from:to], body, M)
		} else {
			used, ok = unpack(dst[from:to], body, M)
		}
		if !ok {
			return fmt.Errorf("%w: 3lc: its runs do not fit values %d to %d", codecs.ErrCorrupt, from, to-1)
		}
		src = src[scaleLen+used:]
	}
	if len(src) > 0 {
		return fmt.Errorf("%w: 3lc: %d bytes follow its %d values", codecs.ErrCorrupt, len(src), d.n)
	}
	return nil
}
