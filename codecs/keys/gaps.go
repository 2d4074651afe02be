package keys

import "math"

// key is the type constraint of the numbers in a Rice code.
type key interface{ uint32 | uint64 }

// gaps are the keys of a Rice code: positions of 32 bits, which have kernels, or any.
type gaps interface {
	count() int
	first() uint64
	last() uint64
	mustAscend()
	quotients(d divisor) uint64       // the function of that name
	write(d divisor, buf []byte) uint // the function of that name, from bit 0
}

type wide []uint64

func (w wide) count() int    { return len(w) }
func (w wide) first() uint64 { return w[0] }
func (w wide) last() uint64  { return w[len(w)-1] }
func (w wide) mustAscend()   { mustAscend(w) }

func (w wide) quotients(d divisor) (sum uint64) {
	var room [wideCut]uint32
	for len(w) > 1 {
		part := w[:min(len(w), wideCut)]
		if k := part.narrow(&room); k != nil {
			sum += k.quotients(d)
		} else {
			sum += quotients(d, part)
		}
		w = w[len(part)-1:]
	}
	return sum
}

func (w wide) write(d divisor, buf []byte) (at uint) {
	var room [wideCut]uint32
	for len(w) > 1 {
		part := w[:min(len(w), wideCut)]
		if k := part.narrow(&room); k != nil {
			at = k.writeFrom(d, buf, at)
		} else {
			at = write(d, buf, at, part)
		}
		w = w[len(part)-1:]
	}
	return at
}

// wideCut is the number of keys that are made narrow together.
const wideCut = 1<<10 + 1

// narrow returns keys with the same gaps, in room, or nil if the gaps are too large for kernels.
func (w wide) narrow(room *[wideCut]uint32) narrow {
	if w.last()-w.first() > math.MaxInt32 {
		return nil
	}
	for i, key := range w {
		room[i] = uint32(key - w[0])
	}
	return room[:len(w)]
}

type narrow []uint32

func (k narrow) count() int    { return len(k) }
func (k narrow) first() uint64 { return uint64(k[0]) }
func (k narrow) last() uint64  { return uint64(k[len(k)-1]) }

func (k narrow) mustAscend() { mustAscend(k) }

func (k narrow) quotients(d divisor) uint64 {
	sum, n := quotientTiles(d, k)
	return sum + quotients(d, k[n:])
}

func (k narrow) write(d divisor, buf []byte) uint { return k.writeFrom(d, buf, 0) }

func (k narrow) writeFrom(d divisor, buf []byte, at uint) uint {
	for len(k) > 1 {
		end, n, ok := writeTiles(d, buf, at, k)
		if !ok {
			break
		}
		at, k = end, k[n:]
		n = min(len(k)-1, 8) // among them the one that the kernel does not write
		at, k = write(d, buf, at, k[:n+1]), k[n:]
	}
	return write(d, buf, at, k)
}
