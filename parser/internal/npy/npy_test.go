package npy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// file returns a file as NumPy writes it, with n bytes of elements.
func file(version byte, dict string, n int) []byte {
	b := append([]byte("\x93NUMPY"), version, 0)
	fixed := 10
	if version > 1 {
		fixed = 12
	}
	text := dict + strings.Repeat(" ", 63-(fixed+len(dict))%64) + "\n"
	if version > 1 {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	} else {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	}
	b = append(b, text...)
	for i := range n {
		b = append(b, byte(i))
	}
	return b
}

func dict(descr, fortran, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", descr, fortran, shape)
}

// scan returns the elements that a Scanner finds in a file that comes in pieces of step bytes.
func scan(t *testing.T, b []byte, size int, part bool, step int) (elements []byte, h Header) {
	t.Helper()
	var s Scanner
	s.Begin(size, part)
	for at := 0; at < len(b); {
		of, off := s.Elements()
		n, in := s.Next(b[at:min(len(b), at+step)])
		if n < 1 || n > step {
			t.Fatalf("%d bytes of %d", n, step)
		}
		if in {
			if off != len(elements) || off+n > of {
				t.Fatalf("elements [%d, +%d) of %d after %d", off, n, of, len(elements))
			}
			elements = append(elements, b[at:at+n]...)
		}
		at += n
	}
	h, _ = s.Header()
	return elements, h
}

func TestScannerFindsElements(t *testing.T) {
	for _, c := range []struct {
		name    string
		version byte
		dict    string
		n       int
		want    tensor.DType
	}{
		{"float32", 1, dict("<f4", "False", "3, 5"), 60, tensor.Float32},
		{"version 2", 2, dict("<f8", "False", "3,"), 24, tensor.Float64},
		{"version 3, Fortran order", 3, dict("<f2", "True", "2, 2"), 8, tensor.Float16},
		{"a scalar", 1, dict("<i8", "False", ""), 8, tensor.Int64},
		{"booleans", 1, dict("|b1", "False", "7,"), 7, tensor.Uint8},
		{"no elements", 1, dict("<f4", "False", "0, 4"), 0, tensor.Float32},
		{"keys in another order", 1, `{"shape": (2,), "fortran_order": False, "descr": "<u2"}`, 4, tensor.Uint16},
		{"big-endian", 1, dict(">f4", "False", "2,"), 8, tensor.NoDType},
		{"text", 1, dict("<U3", "False", "2,"), 24, tensor.NoDType},
		{"records", 1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8, tensor.NoDType},
		{"too few elements", 1, dict("<f4", "False", "3,"), 8, tensor.NoDType},
		{"too many elements", 1, dict("<f4", "False", "1,"), 8, tensor.NoDType},
		{"too large", 1, dict("<f4", "False", "1099511627776, 1099511627776"), 8, tensor.NoDType},
		{"a negative shape", 1, dict("<f4", "False", "-2,"), 8, tensor.NoDType},
		{"no shape", 1, "{'descr': '<f4', 'fortran_order': False, }", 8, tensor.NoDType},
		{"version 4", 4, dict("<f4", "False", "2,"), 8, tensor.NoDType},
	} {
		b := file(c.version, c.dict, c.n)
		for _, step := range []int{1, 7, 129, len(b)} {
			elements, h := scan(t, b, len(b), false, step)
			if h.DType != c.want {
				t.Fatalf("%s: %v, want %v", c.name, h.DType, c.want)
			}
			if c.want != tensor.NoDType && !bytes.Equal(elements, b[len(b)-c.n:]) || c.want == tensor.NoDType && elements != nil {
				t.Fatalf("%s, in pieces of %d bytes: %d bytes of elements, want the last %d", c.name, step, len(elements), c.n)
			}
		}
	}
}

// The first part of a file has the header and the first elements.
func TestScannerTakesParts(t *testing.T) {
	b := file(1, dict("<f4", "False", "100,"), 400)
	cut := b[:300]
	if elements, h := scan(t, cut, len(cut), true, 11); h.Data != 400 || !bytes.Equal(elements, cut[h.Len:]) {
		t.Errorf("%+v, %d bytes of elements", h, len(elements))
	}
	if elements, _ := scan(t, cut, len(cut), false, 11); elements != nil {
		t.Error("a part is taken for the whole file")
	}
}

// A header that is long, or is none, is not gathered.
func TestScannerIsBounded(t *testing.T) {
	long := append([]byte("\x93NUMPY\x02\x00"), 0xff, 0xff, 0xff, 0x7f)
	for _, b := range [][]byte{long, []byte("something else altogether")} {
		var s Scanner
		s.Begin(1<<30, false)
		for range 100 {
			for rest := append(b, make([]byte, MaxHeader)...); len(rest) > 0; {
				n, in := s.Next(rest)
				if in {
					t.Fatal("elements without a header")
				}
				rest = rest[n:]
			}
		}
		if s.Held() > 2*MaxHeader {
			t.Errorf("%d bytes are held", s.Held())
		}
	}
}

// However a file is cut, the same bytes are its elements; and no bytes are read out of bounds.
func FuzzScanner(f *testing.F) {
	f.Add(file(1, dict("<f4", "False", "3, 5"), 60), 0, false)
	f.Add(file(2, dict("<f8", "True", "3,"), 24), 24, true)
	f.Add([]byte("\x93NUMPY\x01\x00"), 1, false)
	f.Fuzz(func(t *testing.T, b []byte, more int, part bool) {
		if len(b) == 0 || more < 0 || more > 1<<20 {
			return
		}
		whole, h := scan(t, b, len(b)+more, part, len(b))
		for _, step := range []int{1, 13} {
			if cut, again := scan(t, b, len(b)+more, part, step); !bytes.Equal(cut, whole) || again != h {
				t.Fatalf("in pieces of %d bytes: %d bytes of elements, else %d", step, len(cut), len(whole))
			}
		}
	})
}
