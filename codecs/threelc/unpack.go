package threelc

import "math"

// runLength is how many quartic bytes an encoded byte stands for.
var runLength = func() (table [256]uint8) {
	for b := range table {
		table[b] = 1
		if b >= firstRun {
			table[b] = uint8(minRun + b - firstRun)
		}
	}
	return table
}()

// masks are the five values of an encoded byte, as what must be left of the bits of -M: all of them for -1, all but
// the sign for 1, none for 0. They are those of five zeros for a run.
var masks = func() (table [5][256]uint32) {
	for b := range firstRun {
		for k, rest := 4, b; k >= 0; k, rest = k-1, rest/3 {
			table[k][b] = [3]uint32{0xffffffff, 0, 0x7fffffff}[rest%3]
		}
	}
	return table
}()

// unpack sets x to what src begins with, a block's zero-run encoding, times M (at least 0), and returns how many bytes of
// src that was; ok is false if src ends before or its runs do not end with x.
func unpack(x []float32, src []byte, M float32) (used int, ok bool) {
	clear(x)
	p := uint((len(x) + 4) / 5)
	bits := math.Float32bits(-M)
	j, i := uint(0), 0
	if whole := len(x) - 4*int(p); whole > 0 {
		x4 := x[4*p:]
		x0, x1, x2, x3 := x[:len(x4)], x[p:][:len(x4)], x[2*p:][:len(x4)], x[3*p:][:len(x4)]
		for i < len(src) && j < uint(len(x4)) {
			// All five values of a run's first byte are set, to the zeros that they are: no branch depends on src.
			b := src[i]
			x0[j] = math.Float32frombits(masks[0][b] & bits)
			x1[j] = math.Float32frombits(masks[1][b] & bits)
			x2[j] = math.Float32frombits(masks[2][b] & bits)
			x3[j] = math.Float32frombits(masks[3][b] & bits)
			x4[j] = math.Float32frombits(masks[4][b] & bits)
			j += uint(runLength[b])
			i++
		}
	}
	for ; i < len(src) && j < p; i++ {
		b := src[i]
		for k := range uint(5) {
			if v := k*p + j; v < uint(len(x)) {
				x[v] = math.Float32frombits(masks[k][b] & bits)
			}
		}
		j += uint(runLength[b])
	}
	return i, j == p
}
