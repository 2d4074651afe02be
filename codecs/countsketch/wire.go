package countsketch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/tensor"
)

// Cells is the format of a sketch's cells on the wire. In memory they are float32.
type Cells uint8

const (
	Float32 Cells = iota // exact
	Float16              // rounded to 11 bits, the largest cell's exponent being known (section 6 of Sketched-SGD)
)

func (c Cells) String() string { return c.dtype().String() }

func (c Cells) dtype() tensor.DType {
	if c == Float16 {
		return tensor.Float16
	}
	return tensor.Float32
}

// Size returns the bytes of one cell.
func (c Cells) Size() int { return c.dtype().Size() }

var (
	// ErrCorrupt says that bytes are not a sketch, or not one of the Config that they are to be added to.
	ErrCorrupt = errors.New("countsketch: corrupt sketch")
	// ErrOverflow says that a cell is infinite or no number: an inserted value was, or values were too large.
	ErrOverflow = errors.New("countsketch: a cell overflows")
)

// HeaderLen is the number of bytes before the cells of a sketch on the wire.
const HeaderLen = 16

// EncodedLen returns the number of bytes that a sketch takes on the wire.
func (c Config) EncodedLen(w Cells) int { return HeaderLen + c.Rows*c.Columns*w.Size() }

// Append appends the sketch, in the wire form of the package comment, to dst. The error wraps ErrOverflow; dst is then
// as it was.
func (s *Sketch) Append(dst []byte, w Cells) ([]byte, error) {
	largest := absmax.Of(s.cells)
	if err := w.check(largest); err != nil {
		return dst, err
	}
	c, exponent := s.Config(), 0
	if w == Float16 {
		exponent = exponentOf(largest)
	}
	dst = slices.Grow(dst, c.EncodedLen(w))
	dst = append(dst, byte(c.Rows), byte(w.Size()))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(exponent))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(c.Columns))
	dst = binary.LittleEndian.AppendUint64(dst, c.Seed)
	out := dst[len(dst):][:len(s.cells)*w.Size()]
	if w == Float32 {
		tensor.FromFloat32(out, s.cells, tensor.Float32)
	} else {
		var scaled [256]float32
		for i := 0; i < len(s.cells); i += len(scaled) {
			part := scaled[:min(len(scaled), len(s.cells)-i)]
			scale(part, s.cells[i:], -exponent)
			tensor.FromFloat32(out[2*i:][:2*len(part)], part, tensor.Float16)
		}
	}
	return dst[:len(dst)+len(out)], nil
}

// AddEncoded adds a sketch of the same Config that Append has encoded; no bytes may follow it. The error wraps
// ErrCorrupt, or ErrOverflow where a sum is not finite; after it, the cells are unspecified.
func (s *Sketch) AddEncoded(src []byte) error {
	if len(src) < HeaderLen {
		return fmt.Errorf("%w: %d bytes, its header has %d", ErrCorrupt, len(src), HeaderLen)
	}
	w := Float32
	switch src[1] {
	case 2:
		w = Float16
	case 4:
	default:
		return fmt.Errorf("%w: cells of %d bytes; there are 2 and 4", ErrCorrupt, src[1])
	}
	exponent := int(int16(binary.LittleEndian.Uint16(src[2:])))
	c := Config{int(src[0]), int(binary.LittleEndian.Uint32(src[4:])), binary.LittleEndian.Uint64(src[8:])}
	switch {
	case c != s.Config():
		return fmt.Errorf("%w: it is of %+v, this one of %+v", ErrCorrupt, c, s.Config())
	case len(src) != c.EncodedLen(w):
		return fmt.Errorf("%w: %d bytes; %d x %d cells have %d", ErrCorrupt, len(src), c.Rows, c.Columns, c.EncodedLen(w))
	case w == Float32 && exponent != 0 || exponent < minExponent || exponent > maxExponent:
		return fmt.Errorf("%w: its exponent is %d", ErrCorrupt, exponent)
	}
	var part [256]float32
	for i := 0; i < len(s.cells); i += len(part) {
		to := s.cells[i:min(i+len(part), len(s.cells))]
		values := part[:len(to)]
		tensor.ToFloat32(values, src[HeaderLen+i*w.Size():][:len(to)*w.Size()], w.dtype())
		if w == Float16 {
			scale(values, values, exponent)
		}
		for j, v := range values {
			if !finite(v) {
				return fmt.Errorf("%w: cell %d is %v", ErrCorrupt, i+j, v)
			}
			if to[j] += v; !finite(to[j]) {
				return fmt.Errorf("%w: the sum of cell %d", ErrOverflow, i+j)
			}
		}
	}
	return nil
}

// Round gives each cell the value that it has after travelling in cells of width w. The error is that of Append, and
// leaves s as it was.
func (s *Sketch) Round(w Cells) error {
	largest := absmax.Of(s.cells)
	if err := w.check(largest); err != nil || w == Float32 {
		return err
	}
	var scaled [256]float32
	exponent := exponentOf(largest)
	for i := 0; i < len(s.cells); i += len(scaled) {
		to := s.cells[i:min(i+len(scaled), len(s.cells))]
		part := scaled[:len(to)]
		scale(part, to, -exponent)
		tensor.Round(part, tensor.Float16)
		scale(to, part, exponent)
	}
	return nil
}

// check returns ErrOverflow if cells cannot travel. largest is the largest magnitude of them.
func (c Cells) check(largest float32) error {
	if !finite(largest) || c == Float16 && largest >= overflow16 {
		return fmt.Errorf("%w: the largest is %v", ErrOverflow, largest)
	}
	return nil
}

// halfBits is the number of bits that the largest magnitude has, as an integer, in units that binary16 rounds to at
// most 2^15.
const halfBits = 15

// The exponents that the largest float32 and the least one lead to.
const maxExponent, minExponent = 128 - halfBits, -148 - halfBits

// overflow16 is the least magnitude that 11 bits round to 2^128, which is infinite.
const overflow16 = 0x1.ffep+127

// exponentOf returns the exponent e with which the magnitude largest lies in [2^14, 2^15) units of 2^e; 0 for 0.
func exponentOf(largest float32) int {
	if largest == 0 {
		return 0
	}
	_, e := math.Frexp(float64(largest)) // largest < 2^e
	return e - halfBits
}

// scale sets dst to the first of x times 2^e, rounded once, to float32: subnormals and 2^e itself fit a float64.
func scale(dst, x []float32, e int) {
	factor := math.Ldexp(1, e)
	for i := range dst {
		dst[i] = float32(float64(x[i]) * factor)
	}
}

func finite(x float32) bool { return math.Abs(float64(x)) <= math.MaxFloat32 }
