package keys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

func encodeElements(t *testing.T, c Coding, elements []int32) ([]byte, error) {
	t.Helper()
	e, err := New(c).NewEncoder(tensor.Int32, len(elements))
	if err != nil {
		t.Fatal(err)
	}
	var src []byte
	for _, x := range elements {
		src = binary.LittleEndian.AppendUint32(src, uint32(x))
	}
	return e.Append(nil, src)
}

// A block in the midst of a tensor costs no more than one at its beginning, apart from its first key.
func TestBlocksBeginAnywhere(t *testing.T) {
	each(t, func(t *testing.T, c Coding) {
		near, far := make([]int32, 1000), make([]int32, 1000)
		for i := range near {
			near[i] = int32(7*i + i%5)
			far[i] = near[i] + 2_000_000_000
		}
		a, errA := encodeElements(t, c, near)
		b, errB := encodeElements(t, c, far)
		if errA != nil || errB != nil || len(b) != len(a)+4 {
			t.Errorf("%d bytes near 0 (%v), %d far (%v); want 4 more", len(a), errA, len(b), errB)
		}
	})
}

// Elements that a decoder gives fit their type.
func TestElementsFitTheirType(t *testing.T) {
	each(t, func(t *testing.T, c Coding) {
		keys := []uint64{0, 1 << 20, 1 << 40}
		b := c.Append([]byte{1}, keys[1:])
		for _, d := range []tensor.DType{tensor.Int32, tensor.Uint32, tensor.Int64, tensor.Uint64} {
			fits := d.Size() == 8
			dec, err := New(c).NewDecoder(d, 3)
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, 3*d.Size())
			if err := dec.Decode(dst, b); (err == nil) != fits || err != nil && !errors.Is(err, codecs.ErrCorrupt) {
				t.Errorf("%v: %v", d, err)
			}
			if fits && binary.LittleEndian.Uint64(dst[16:]) != 1<<40+1 {
				t.Errorf("%v: % x", d, dst)
			}
		}
	})
}

// Only types of 32-bit and 64-bit integers are taken.
func TestElementTypes(t *testing.T) {
	taken := 0
	for _, d := range tensor.DTypes() {
		_, err := New(Rice{}).NewEncoder(d, 4)
		switch {
		case err == nil:
			taken++
		case !errors.Is(err, codecs.ErrUnsuited):
			t.Errorf("%v: %v", d, err)
		}
	}
	if taken != 4 {
		t.Errorf("%d types are taken", taken)
	}
}

// Blocks of every length, also around powers of two, come back.
func TestElementsOfEveryLength(t *testing.T) {
	each(t, func(t *testing.T, c Coding) {
		for _, d := range []tensor.DType{tensor.Int32, tensor.Uint64} {
			for _, n := range append(numbers(300), 1023, 1024, 1025, 1<<15-1) {
				src := codectest.Positions.Fill(d, n, uint64(n))
				e, err := New(c).NewEncoder(d, n)
				if err != nil {
					t.Fatal(err)
				}
				b, err := e.Append(nil, src)
				if n == 0 {
					continue
				}
				if err != nil {
					t.Fatalf("%d %v: %v", n, d, err)
				}
				dec, err := New(c).NewDecoder(d, n)
				if err != nil {
					t.Fatal(err)
				}
				back := make([]byte, len(src))
				if err := dec.Decode(back, b); err != nil || !bytes.Equal(back, src) {
					t.Fatalf("%d %v: they changed, %v", n, d, err)
				}
			}
		}
	})
}

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
