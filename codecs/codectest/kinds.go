package codectest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/gradproxy/gradproxy/tensor"
)

// A Kind is a kind of data that codecs meet.
type Kind int

const (
	Zeros     Kind = iota
	Constant       // one element, repeated
	Gaussian       // a dense gradient: normal, of a scale that changes every 1,000 elements
	Heavy          // Laplace to the third power: few elements hold most of the sum
	Sparse         // one element in eight is not zero
	Rows           // a third of the rows of 64 elements are zero
	Special        // zeros of both signs, subnormals, infinities, NaN of many payloads, among normal values
	Finite         // as Special without infinities and NaN
	Keys           // ascending integers with small gaps, here and there none
	Small          // small integers of both signs
	Random         // any bits
	Positions      // as Keys, each greater than the one before
	kinds
)

var kindNames = [kinds]string{"zeros", "constant", "gaussian", "heavy", "sparse", "rows", "special", "finite", "keys", "small", "random", "positions"}

// Kinds lists every kind.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

func (k Kind) String() string { return kindNames[k] }

// Fill returns n elements of type d of kind k, the same for the same seed. Integer types get a float's bits where k is
// a kind of float.
func (k Kind) Fill(d tensor.DType, n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, uint64(k)))
	size := d.Size()
	b := make([]byte, n*size)
	key := uint64(1000)
	for i := range n {
		at := b[i*size : (i+1)*size]
		switch k {
		case Keys:
			key += uint64(r.ExpFloat64() * 40)
			put(at, key)
		case Positions:
			key += 1 + uint64(r.ExpFloat64()*40)
			put(at, key)
		case Small:
			put(at, uint64(r.IntN(200)-100))
		case Random:
			put(at, r.Uint64())
		default:
			putFloat(at, d, k.value(r, i))
		}
	}
	if k == Special || k == Finite {
		special(b, d, r, k == Special)
	}
	return b
}

func (k Kind) value(r *rand.Rand, i int) float64 {
	switch x := r.NormFloat64() * 1e-3; k {
	case Zeros:
		return 0
	case Constant:
		return 1.25
	case Gaussian:
		return x * math.Pow(2, float64(i/1000%7))
	case Heavy:
		y := r.ExpFloat64()
		return math.Copysign(y*y*y*1e-4, x)
	case Sparse:
		if r.IntN(8) > 0 {
			return 0
		}
		return x
	case Rows:
		if i/64%3 == 0 {
			return 0
		}
		return x
	default:
		return x
	}
}

func put(b []byte, x uint64) {
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], x)
	copy(b, w[:])
}

// putFloat sets b to x as a d, or as the bits of a float of its width.
func putFloat(b []byte, d tensor.DType, x float64) {
	switch {
	case len(b) == 8:
		put(b, math.Float64bits(x))
	case d.Float():
		tensor.FromFloat32(b, []float32{float32(x)}, d)
	default:
		put(b, uint64(math.Float32bits(float32(x)))>>(8*(4-len(b))))
	}
}

// layout returns the widths of a float type's exponent and mantissa.
func layout(d tensor.DType) (exponent, mantissa int) {
	switch d {
	case tensor.Float64:
		return 11, 52
	case tensor.Float32:
		return 8, 23
	case tensor.BFloat16:
		return 8, 7
	case tensor.Float16:
		return 5, 10
	}
	return 0, 8*d.Size() - 1
}

// special puts zeros of both signs, subnormals and, if all, infinities and NaN into one element in sixteen.
func special(b []byte, d tensor.DType, r *rand.Rand, all bool) {
	e, m := layout(d)
	size := d.Size()
	top := uint64(1)<<e - 1
	for i := 0; i+size <= len(b); i += size {
		if r.IntN(16) > 0 {
			continue
		}
		sign, fraction := uint64(r.IntN(2))<<(e+m), r.Uint64()&(1<<m-1)
		x := sign
		switch c := r.IntN(4); {
		case c == 1:
			x |= fraction
		case c == 2 && all:
			x |= top << m
		case c == 3 && all:
			x |= top<<m | fraction
		}
		put(b[i:i+size], x)
	}
}
