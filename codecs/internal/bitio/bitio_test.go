package bitio

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// The first bit is the highest of the first byte.
func TestOrder(t *testing.T) {
	w := NewWriter([]byte{0xee})
	w.Write(0b0011, 4)
	w.Write(0b1, 1)
	w.Write(0x1234, 16)
	if got, want := w.Bytes(), []byte{0xee, 0x38, 0x91, 0xa0}; !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

// Bytes ends a byte; the next bits begin the next byte.
func TestBytesThenMore(t *testing.T) {
	var w Writer
	w.Write(1, 1)
	w.Bytes()
	w.Write(3, 2)
	if got, want := w.Bytes(), []byte{0x80, 0xc0}; !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

// field is a number of n bits, or, where n is over 64, ones and a zero.
type field struct {
	v uint64
	n uint
}

func (f field) write(w *Writer) {
	if f.n <= 64 {
		w.Write(f.v, f.n)
		return
	}
	for i := uint64(0); i < f.v; i++ {
		w.Write(1, 1)
	}
	w.Write(0, 1)
}

func TestFieldsOfEveryWidth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var fields []field
		var w Writer
		for range r.IntN(100) {
			f := field{r.Uint64(), uint(r.IntN(70))}
			if f.n > 64 {
				f.v %= 130
			} else {
				f.v &= 1<<f.n - 1
			}
			f.write(&w)
			fields = append(fields, f)
		}
		b := w.Bytes()
		in := NewReader(b)
		for i, f := range fields {
			var v uint64
			switch {
			case f.n > 64:
				v = in.Unary(f.v)
			case f.n <= PeekMax:
				v = in.Peek(f.n)
				in.Skip(f.n)
			default:
				v = in.Read(f.n)
			}
			if v != f.v {
				t.Fatalf("field %d of %d bits: %x, want %x", i, f.n, v, f.v)
			}
		}
		if used, ok := in.Close(); used != len(b) || !ok {
			t.Fatalf("%d of %d bytes, %v", used, len(b), ok)
		}
	}
}

// Beyond the end there are zeros, and Close tells.
func TestEnd(t *testing.T) {
	r := NewReader([]byte{0xff})
	if v := r.Read(12); v != 0xff0 || !r.Over() {
		t.Errorf("%x, over: %v", v, r.Over())
	}
	if _, ok := r.Close(); ok {
		t.Error("12 bits of 8 were read, and Close is content")
	}
	r = NewReader(nil)
	if v := r.Read(64); v != 0 {
		t.Errorf("%x of nothing", v)
	}
	r = NewReader([]byte{0xa1, 0x77})
	if v := r.Read(7); v != 0x50 {
		t.Errorf("%x", v)
	}
	if used, ok := r.Close(); used != 1 || ok {
		t.Errorf("%d bytes, %v; the last bit of the first byte is not 0", used, ok)
	}
	r.Skip(1)
	if used, ok := r.Close(); used != 1 || !ok {
		t.Errorf("%d bytes, %v", used, ok)
	}
}

// A run of ones is bounded, by the caller's limit and by the end.
func TestUnaryBounded(t *testing.T) {
	ones := bytes.Repeat([]byte{0xff}, 100)
	for _, limit := range []uint64{0, 1, 56, 57, 58, 114, 300, 799} {
		r := NewReader(ones)
		if got := r.Unary(limit); got != limit || !r.Over() {
			t.Errorf("at most %d: %d, over: %v", limit, got, r.Over())
		}
	}
	r := NewReader(ones)
	if got := r.Unary(1000); got != 800 || !r.Over() {
		t.Errorf("%d, over: %v; the zero after 800 ones is beyond the end", got, r.Over())
	}
}

func Benchmark(b *testing.B) {
	const n = 1 << 16
	r := rand.New(rand.NewPCG(1, 2))
	widths := make([]uint, n)
	for i := range widths {
		widths[i] = uint(1 + r.IntN(16))
	}
	var buf []byte
	b.Run("write", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			w := NewWriter(buf[:0])
			for _, k := range widths {
				w.Write(1, k)
			}
			buf = w.Bytes()
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			r := NewReader(buf)
			for _, k := range widths {
				if r.Read(k) != 1 {
					b.Fatal("other bits")
				}
			}
		}
	})
}

// Put writes the bits that a Writer does, wherever they begin, into memory that is not clean.
func TestPut(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		buf := bytes.Repeat([]byte{0xa5}, 8*70+16)
		clear(buf[:8])
		var w Writer
		at := uint(0)
		for range 1 + r.IntN(64) {
			n := 1 + r.UintN(64)
			v := r.Uint64() >> (64 - n)
			w.Write(v, n)
			if end := Put(buf, at, v, n); end != at+n {
				t.Fatalf("%d bits at %d end at %d", n, at, end)
			}
			at += n
		}
		if want := w.Bytes(); !bytes.Equal(buf[:len(want)], want) {
			t.Fatalf("%x, want %x", buf[:len(want)], want)
		}
	}
}
