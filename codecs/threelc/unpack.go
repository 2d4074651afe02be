package threelc

import (
	"bytes"
	"math"
)

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
	bits := math.Float32bits(-M)
	if tile() == 0 {
		return unpackPlain(x, src, bits)
	}
	return unpackPieces(x, src, bits)
}

// piece is how many quartic bytes unpackPieces makes at a time: so few that a processor still stores the values of one piece
// while it expands the next.
const piece = 512

// quarticZeros and literal are what unpackPieces puts where a run or another byte is.
var (
	quarticZeros = [piece]byte(bytes.Repeat([]byte{fiveZeros}, piece))
	literal      = func() (table [256]byte) {
		for b := range table {
			table[b] = byte(b)
			if b >= firstRun {
				table[b] = fiveZeros
			}
		}
		return table
	}()
)

// unpackPieces is unpack by way of quartic bytes, for kernels.
func unpackPieces(x []float32, src []byte, bits uint32) (used int, ok bool) {
	p := quarticLen(len(x))
	var a [piece]byte
	i, at := 0, 0 // the next byte in src and, since the last run may have gone beyond its piece, in a
	for from := 0; from < p; from += piece {
		a := a[:min(piece, p-from)]
		copy(a, quarticZeros[:])
		for at < len(a) && i < len(src) {
			b := src[i]
			a[at] = literal[b]
			at += int(runLength[b])
			i++
		}
		if at < len(a) {
			return i, false
		}
		at -= len(a)
		for k := unpackTiles(x, a, from, p, bits); k < len(a); k++ {
			unpackByte(x, from+k, p, a[k], bits)
		}
	}
	return i, at == 0
}

// unpackByte sets the values of byte j of p.
func unpackByte(x []float32, j, p int, b byte, bits uint32) {
	for k := range 5 {
		if v := k*p + j; v < len(x) {
			x[v] = math.Float32frombits(masks[k][b] & bits)
		}
	}
}

// unpackPlain is unpack in Go. bits is -M.
func unpackPlain(x []float32, src []byte, bits uint32) (used int, ok bool) {
	clear(x)
	clear(x)
	p := uint((len(x) + 4) / 5)
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
		unpackByte(x, int(j), int(p), b, bits)
		j += uint(runLength[b])
	}
	return i, j == p
}
