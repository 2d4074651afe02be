package threelc

import (
	"bytes"
	"math"
)

// runLength is the number of quartic bytes that an encoded byte stands for.
var runLength = func() (table [256]uint8) {
	for b := range table {
		table[b] = 1
		if b >= firstRun {
			table[b] = uint8(minRun + b - firstRun)
		}
	}
	return table
}()

// masks are the five values of an encoded byte, as masks of the bits of -M: all bits for -1, all but the sign for 1,
// none for 0. A run has the masks of five zeros.
var masks = func() (table [5][256]uint32) {
	for b := range firstRun {
		for k, rest := 4, b; k >= 0; k, rest = k-1, rest/3 {
			table[k][b] = [3]uint32{0xffffffff, 0, 0x7fffffff}[rest%3]
		}
	}
	return table
}()

// unpack sets x from a block's zero-run encoding, with which src begins, times M (at least 0), and returns the length
// of that encoding; ok is false if src ends before or its runs do not end with x.
func unpack(x []float32, src []byte, M float32) (used int, ok bool) {
	bits := math.Float32bits(-M)
	if tile() == 0 {
		return unpackPlain(x, src, bits)
	}
	var r reached
	r.used, r.done, r.run = unpackRuns(x, src, bits)
	return unpackPieces(x, src, bits, r)
}

// A reached is the progress of unpacking a block: the values of the first done quartic bytes are set, from used bytes
// of src, of which the last stands for run zeros more.
type reached struct{ used, done, run int }

// piece is the number of quartic bytes that unpackPieces makes at a time: so few that a processor still stores the
// values of one piece while it expands the next.
const piece = 512

// A room has the quartic bytes of a piece and the bytes that may be written behind it.
type room [1024]byte

var quarticZeros = room(bytes.Repeat([]byte{fiveZeros}, len(room{})))

// beyond is the maximum of bytes of the next piece in a room: as many as eight runs have.
const beyond = 8 * maxRun

// expansion has, for each encoded byte, the number of quartic bytes that it stands for, and in the lower half the first
// of them.
var expansion = func() (table [256]uint16) {
	for b := range table {
		first := b
		if b >= firstRun {
			first = fiveZeros
		}
		table[b] = uint16(runLength[b])<<8 | uint16(first)
	}
	return table
}()

// expand sets a from place at on to the quartic bytes that src stands for, until there are n or src ends. It returns
// the number of bytes of src that it took and the place that it has reached: up to beyond behind n, but behind limit
// only by the rest of a single run.
func (a *room) expand(src []byte, at, n, limit int) (used, end int) {
	used, at = expandTiles(a, src, at, min(n, limit-beyond))
	return a.expandRest(src, used, at, n)
}

// expandRest is expand in Go, when used bytes of src have been taken.
func (a *room) expandRest(src []byte, used, at, n int) (int, int) {
	if at < n {
		copy(a[at:n+maxRun], quarticZeros[:])
	}
	for at < n && used < len(src) {
		x := expansion[src[used]]
		a[uint(at)%uint(len(a))] = byte(x)
		at += int(x >> 8)
		used++
	}
	return used, at
}

// unpackPieces is unpack from where it has reached, by way of quartic bytes: of a whole block where kernels expand
// runs, and else of the rest after unpackRuns. It expands a piece before it sets the values of the one before: in the
// processor, a kernel's reads wait for all earlier stores, and values wait for memory.
func unpackPieces(x []float32, src []byte, bits uint32, r reached) (used int, ok bool) {
	p := quarticLen(len(x))
	var a [2]room
	now, next := &a[0], &a[1]
	copy(now[:r.run], quarticZeros[:])
	taken, at := now.expand(src[r.used:], r.run, min(piece, p-r.done), p-r.done)
	used = r.used + taken
	for from := r.done; from < p; from += piece {
		n := min(piece, p-from)
		if at < n {
			return used, false
		}
		at -= n
		if left := p - from - n; left > 0 {
			copy(next[:beyond], now[n:])
			taken, at = next.expand(src[used:], at, min(piece, left), left)
			used += taken
		}
		for k := unpackTiles(x, now[:n], from, p, bits); k < n; k++ {
			unpackByte(x, from+k, p, now[k], bits)
		}
		now, next = next, now
	}
	return used, at == 0
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
