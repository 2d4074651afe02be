package reference

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

func types() []tensor.DType { return append(tensor.DTypes(), tensor.NoDType) }

// plainDifference defines differ, for one element at a time.
func plainDifference(d tensor.DType, x, r uint64) uint64 {
	bits := 8 * d.Size()
	integer := func(u uint64) int64 {
		i := int64(u<<(64-bits)) >> (64 - bits)
		if d.Float() && i < 0 {
			i ^= 1<<(bits-1) - 1
		}
		return i
	}
	i := (integer(x) - integer(r)) << (64 - bits) >> (64 - bits)
	z := 2 * uint64(i)
	if i < 0 {
		z = 2*uint64(-i) - 1
	}
	return z & (math.MaxUint64 >> (64 - bits))
}

func at(b []byte, i, size int) uint64 {
	var w [8]byte
	copy(w[:], b[i*size:(i+1)*size])
	return binary.LittleEndian.Uint64(w[:])
}

// Every length and every place in a word, against the plain definition, there and back.
func TestDifferenceIsAsDefined(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range types() {
		l, size := laneOf(d), d.Size()
		for n := range 70 {
			x, ref := make([]byte, n*size), make([]byte, n*size)
			for i := range x {
				x[i], ref[i] = byte(r.Uint32()), byte(r.Uint32())
				if r.IntN(3) == 0 { // zeros, signs and all ones
					x[i], ref[i] = []byte{0, 0x80, 0xff}[r.IntN(3)], []byte{0, 0x80, 0xff, 0x7f}[r.IntN(4)]
				}
			}
			z, back := make([]byte, len(x)), make([]byte, len(x))
			l.differ(z, x, ref)
			for i := range n {
				if got, want := at(z, i, size), plainDifference(d, at(x, i, size), at(ref, i, size)); got != want {
					t.Fatalf("%v: element %d of %d, %#x against %#x, is %#x, want %#x", d, i, n, at(x, i, size), at(ref, i, size), got, want)
				}
			}
			l.restore(back, z, ref)
			l.restore(z, z, ref)
			if !bytes.Equal(back, x) || !bytes.Equal(z, x) {
				t.Fatalf("%v: %d elements: %x came back as %x, and in place as %x", d, n, x, back, z)
			}
		}
	}
}

// From one float to the next it is one step, for every sign and exponent: over all float16 in their order, -0 before
// +0.
func TestNeighboursDifferByOne(t *testing.T) {
	l := laneOf(tensor.Float16)
	var order []uint16
	for b := 0xffff; b >= 0x8000; b-- {
		order = append(order, uint16(b))
	}
	for b := range 0x8000 {
		order = append(order, uint16(b))
	}
	for i, b := range order[1:] {
		x := binary.LittleEndian.AppendUint16(nil, b)
		r := binary.LittleEndian.AppendUint16(nil, order[i])
		up, down := make([]byte, 2), make([]byte, 2)
		l.differ(up, x, r)
		l.differ(down, r, x)
		if !bytes.Equal(up, []byte{2, 0}) || !bytes.Equal(down, []byte{1, 0}) {
			t.Fatalf("from %#04x to %#04x is %x, and back %x", order[i], b, up, down)
		}
	}
}

func FuzzDifference(f *testing.F) {
	f.Add([]byte("a few bytes that are the elements and the reference"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, which uint8) {
		d := types()[int(which)%len(types())]
		size := d.Size()
		n := len(b) / 2 / size
		x, r := b[:n*size], b[n*size:2*n*size]
		z := make([]byte, len(x))
		laneOf(d).differ(z, x, r)
		for i := range n {
			if got, want := at(z, i, size), plainDifference(d, at(x, i, size), at(r, i, size)); got != want {
				t.Fatalf("element %d: %#x, want %#x", i, got, want)
			}
		}
		laneOf(d).restore(z, z, r)
		if !bytes.Equal(z, x) {
			t.Fatalf("%x came back as %x", x, z)
		}
	})
}
