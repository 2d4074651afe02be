package block

import "math"

// smallestNormal is the least float32 with 24 bits and a finite reciprocal.
const smallestNormal = 0x1p-126

// scaleOf returns the scale of a block of largest magnitude largest, in which that is levels: largest/levels. A
// subnormal scale has few bits and is rounded up, so that no value exceeds levels.
func scaleOf(largest, levels float32) float32 {
	scale := largest / levels
	if scale < smallestNormal {
		scale = float32(math.Ceil(float64(largest)/float64(levels)*0x1p149) * 0x1p-149)
	}
	return scale
}

// Adding one of these rounds a float32 of magnitude under 2^22 to an integer, ties to even, which the lowest bits of
// the sum then hold: as it is, and plus 8.
const (
	rounder  = 3 << 22
	rounder4 = rounder + 8
)

// inverse returns the factor that turns values into units of scale.
func inverse(scale float32) float32 {
	if scale == 0 {
		return 0
	}
	return 1 / scale
}

// quantize8 sets dst to x in units of 1/inv, rounded. It panics if dst is shorter than x. Like the functions below it
// begins with the tiles of values that a kernel can take.
func quantize8(dst []byte, x []float32, inv float32) {
	dst = dst[:len(x)]
	n := quantize8Tiles(dst, x, inv)
	quantize8Plain(dst[n:], x[n:], inv)
}

// quantize8Plain is quantize8 in Go. (This function and the next ones take two or more values a turn: a turn's own work
// is as much as a value's.)
func quantize8Plain(dst []byte, x []float32, inv float32) {
	dst = dst[:len(x)]
	i := 0
	for ; i+1 < len(x); i += 2 {
		dst[i] = byte(math.Float32bits(float32(x[i]*inv) + rounder))
		dst[i+1] = byte(math.Float32bits(float32(x[i+1]*inv) + rounder))
	}
	if i < len(x) {
		dst[i] = byte(math.Float32bits(float32(x[i]*inv) + rounder))
	}
}

// quantizeSum8 quantizes the sums x[i]+e[i] and sets e to the sums less the values that dequantize8 delivers.
func quantizeSum8(dst []byte, x, e []float32, inv, scale float32) {
	dst, e = dst[:len(x)], e[:len(x)]
	n := quantizeSum8Tiles(dst, x, e, inv, scale)
	quantizeSum8Plain(dst[n:], x[n:], e[n:], inv, scale)
}

func quantizeSum8Plain(dst []byte, x, e []float32, inv, scale float32) {
	dst, e = dst[:len(x)], e[:len(x)]
	i := 0
	for ; i+1 < len(x); i += 2 {
		S, T := x[i]+e[i], x[i+1]+e[i+1]
		p, q := float32(S*inv)+rounder, float32(T*inv)+rounder
		dst[i], dst[i+1] = byte(math.Float32bits(p)), byte(math.Float32bits(q))
		e[i] = S - float32((p-rounder)*scale)
		e[i+1] = T - float32((q-rounder)*scale)
	}
	if i < len(x) {
		S := x[i] + e[i]
		p := float32(S*inv) + rounder
		dst[i] = byte(math.Float32bits(p))
		e[i] = S - float32((p-rounder)*scale)
	}
}

// int8s are the values of a byte. Looking them up costs less than to convert them.
var int8s = func() (table [256]float32) {
	for b := range table {
		table[b] = float32(int8(b))
	}
	return table
}()

// dequantize8 sets x from the len(x) bytes of src.
func dequantize8(x []float32, src []byte, scale float32) {
	src = src[:len(x)]
	n := dequantize8Tiles(x, src, scale)
	dequantize8Plain(x[n:], src[n:], scale)
}

func dequantize8Plain(x []float32, src []byte, scale float32) {
	src = src[:len(x)]
	i := 0
	for ; i+3 < len(x); i += 4 {
		x[i] = int8s[src[i]] * scale
		x[i+1] = int8s[src[i+1]] * scale
		x[i+2] = int8s[src[i+2]] * scale
		x[i+3] = int8s[src[i+3]] * scale
	}
	for ; i < len(x); i++ {
		x[i] = int8s[src[i]] * scale
	}
}

// quantize4 sets the ceil(len(x)/2) bytes of dst to x in units of 1/inv, rounded: the first half in their lower halves.
func quantize4(dst []byte, x []float32, inv float32) {
	quantize4From(quantize4Tiles(dst, x, inv), dst, x, inv)
}

// quantize4From is quantize4 in Go, from byte n on.
func quantize4From(n int, dst []byte, x []float32, inv float32) {
	low, high := x[n:len(dst)], x[len(dst)+n:]
	dst = dst[n:]
	pairs := dst[:len(high)]
	low = low[:len(dst)]
	for j := range pairs {
		a := math.Float32bits(float32(low[j]*inv) + rounder4)
		b := math.Float32bits(float32(high[j]*inv) + rounder4)
		pairs[j] = byte(a&15 | b<<4)
	}
	if j := len(pairs); j < len(dst) {
		dst[j] = byte(math.Float32bits(float32(low[j]*inv)+rounder4)&15 | 8<<4)
	}
}

// quantizeSum4 is to quantize4 as quantizeSum8 to quantize8.
func quantizeSum4(dst []byte, x, e []float32, inv, scale float32) {
	e = e[:len(x)]
	quantizeSum4From(quantizeSum4Tiles(dst, x, e, inv, scale), dst, x, e, inv, scale)
}

func quantizeSum4From(n int, dst []byte, x, e []float32, inv, scale float32) {
	h := len(dst)
	low, high := x[n:h], x[h+n:]
	eLow, eHigh := e[n:h], e[h+n:][:len(high)]
	dst = dst[n:]
	pairs := dst[:len(high)]
	low, eLow = low[:len(dst)], eLow[:len(dst)]
	for j := range pairs {
		S, T := low[j]+eLow[j], high[j]+eHigh[j]
		a, b := float32(S*inv)+rounder4, float32(T*inv)+rounder4
		pairs[j] = byte(math.Float32bits(a)&15 | math.Float32bits(b)<<4)
		eLow[j] = S - float32((a-rounder4)*scale)
		eHigh[j] = T - float32((b-rounder4)*scale)
	}
	if j := len(pairs); j < len(dst) {
		S := low[j] + eLow[j]
		a := float32(S*inv) + rounder4
		dst[j] = byte(math.Float32bits(a)&15 | 8<<4)
		eLow[j] = S - float32((a-rounder4)*scale)
	}
}

// dequantize4 sets x from the ceil(len(x)/2) bytes of src.
func dequantize4(x []float32, src []byte, scale float32) {
	dequantize4From(dequantize4Tiles(x, src, scale), x, src, scale)
}

func dequantize4From(n int, x []float32, src []byte, scale float32) {
	var value [16]float32
	for q := range value {
		value[q] = float32(q-8) * scale
	}
	low, high := x[n:len(src)], x[len(src)+n:]
	src = src[n:]
	pairs := src[:len(high)]
	for j, b := range pairs {
		low[j] = value[b&15]
		high[j] = value[b>>4]
	}
	if j := len(pairs); j < len(src) {
		low[j] = value[src[j]&15]
	}
}

// roundTiny returns x in units of a subnormal scale; its reciprocal may be infinite.
func roundTiny(x, scale float32) int {
	return int(math.RoundToEven(float64(x) / float64(scale)))
}
