package reference

import (
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
	"github.com/gradproxy/gradproxy/tensor"
)

// subtract sets d to x - r, elements of type t, rounded to float32.
func subtract(d []float32, x, r []byte, t tensor.DType) {
	if t == tensor.Float64 {
		for i := range d {
			d[i] = float32(float64At(x, i) - float64At(r, i))
		}
		return
	}
	if t == tensor.Float32 {
		if x, r := tensor.View(x), tensor.View(r); x != nil {
			subtract32(d, x, r)
			return
		}
	}
	v := scratch.Take(len(d))
	defer scratch.Put(v)
	tensor.ToFloat32(d, x, t)
	tensor.ToFloat32(*v, r, t)
	subtract32(d, d, *v)
}

// subtract32 sets d, which may be x, to x - r.
func subtract32(d, x, r []float32) {
	x, r = x[:len(d)], r[:len(d)]
	i := 0
	for ; i+3 < len(d); i += 4 {
		d[i] = x[i] - r[i]
		d[i+1] = x[i+1] - r[i+1]
		d[i+2] = x[i+2] - r[i+2]
		d[i+3] = x[i+3] - r[i+3]
	}
	for ; i < len(d); i++ {
		d[i] = x[i] - r[i]
	}
}

// add sets dst to r + y, elements of type t, as tensor.Round rounds them. y is used up.
func add(dst, r []byte, y []float32, t tensor.DType) {
	if t == tensor.Float64 {
		for i, v := range y {
			s := math.Float64bits(float64At(r, i) + float64(v))
			binary.LittleEndian.PutUint64(dst[8*i:], s)
		}
		return
	}
	if t == tensor.Float32 {
		if s, r := tensor.View(dst), tensor.View(r); s != nil {
			add32(s, r, y)
			return
		}
	}
	v := scratch.Take(len(y))
	defer scratch.Put(v)
	tensor.ToFloat32(*v, r, t)
	add32(y, *v, y)
	tensor.RoundTo(dst, y, t)
}

// add32 sets s, which may be r or y, to r + y; sums beyond the largest finite value become that value.
func add32(s, r, y []float32) {
	r, y = r[:len(s)], y[:len(s)]
	var largest uint32 // of the bits without signs
	i := 0
	for ; i+1 < len(s); i += 2 {
		a, b := r[i]+y[i], r[i+1]+y[i+1]
		s[i], s[i+1] = a, b
		largest = max(largest, math.Float32bits(a)<<1, math.Float32bits(b)<<1)
	}
	if i < len(s) {
		s[i] = r[i] + y[i]
		largest = max(largest, math.Float32bits(s[i])<<1)
	}
	if largest>>1 > math.Float32bits(math.MaxFloat32) {
		settle(s)
	}
}

// settle makes infinities the largest finite value of their sign, as no lossy method should make one. Processors give a
// NaN bits of their own, so it gets some that all have; no sum of finite values is one.
func settle(s []float32) {
	for i, v := range s {
		switch {
		case v != v:
			s[i] = math.Float32frombits(0x7fc00000)
		case v > math.MaxFloat32:
			s[i] = math.MaxFloat32
		case v < -math.MaxFloat32:
			s[i] = -math.MaxFloat32
		}
	}
}

func float64At(b []byte, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
}
