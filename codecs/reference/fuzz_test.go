package reference_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/tensor"
)

// FuzzDecode: any bytes are an encoding or ErrCorrupt, after which the copy is as it was.
func FuzzDecode(f *testing.F) {
	const n = 64
	types := append(tensor.DTypes(), tensor.NoDType)
	texts := []string{"lossless", "int8", "3lc"}
	held := func(d tensor.DType) *reference.Copy {
		c := reference.NewCopy(n*d.Size(), 0)
		c.Set(codectest.Gaussian.Fill(d, n, 1))
		return c
	}
	for i, text := range texts {
		for j, d := range types {
			enc, err := reference.NewEncoder(mustNew(f, text), d, held(d), nil)
			if err != nil {
				continue
			}
			for _, k := range codectest.Kinds() {
				if b, err := enc.Append(nil, k.Fill(d, n, 1)); err == nil {
					f.Add(uint8(i), uint8(j), b)
				}
			}
		}
	}
	for _, path := range vectors(f) {
		for _, p := range readVector(f, path).parts {
			if p.name == "bytes" {
				f.Add(uint8(0), uint8(0), p.hex(f))
				f.Add(uint8(1), uint8(0), p.hex(f))
			}
		}
	}
	f.Fuzz(func(t *testing.T, codec, dtype uint8, src []byte) {
		d := types[int(dtype)%len(types)]
		c := held(d)
		dec, err := reference.NewDecoder(mustNew(t, texts[int(codec)%len(texts)]), d, c, c)
		if err != nil {
			return // no values of this type
		}
		before := c.AppendTo(nil)
		dst := make([]byte, len(before))
		switch err := dec.Decode(dst, src); {
		case err == nil:
			if c.Version() != 2 || !bytes.Equal(c.AppendTo(nil), dst) {
				t.Fatal("what is held is not what was delivered")
			}
		case !errors.Is(err, codecs.ErrCorrupt):
			t.Fatalf("%v is not an ErrCorrupt", err)
		case c.Version() != 1 || !bytes.Equal(c.AppendTo(nil), before):
			t.Fatal("an encoding that is refused changed the copy")
		}
	})
}

// FuzzRoundTrip: any values of any type, one after another, come back, to the bit around the lossless codec, and both
// ends hold the same.
func FuzzRoundTrip(f *testing.F) {
	types := append(tensor.DTypes(), tensor.NoDType)
	texts := []string{"lossless", "int8", "int4(block=3)", "3lc(s=1.5,block=20)"}
	for i := range texts {
		for j, d := range types {
			for _, k := range codectest.Kinds() {
				f.Add(uint8(i), uint8(j), append(k.Fill(d, 40, 1), k.Fill(d, 40, 2)...))
			}
		}
	}
	f.Fuzz(func(t *testing.T, codec, dtype uint8, b []byte) {
		d := types[int(dtype)%len(types)]
		c := mustNew(t, texts[int(codec)%len(texts)])
		if codecs.Lossy(c) && !d.Float() {
			return
		}
		n := len(b) / 2 / d.Size()
		size := n * d.Size()
		e := sameDirection(t, c, d, n)
		for _, x := range [][]byte{b[:size], b[size : 2*size], b[:size], b[:size]} {
			if delivered, _ := e.send(t, x); !codecs.Lossy(c) && !bytes.Equal(delivered, x) {
				t.Fatalf("%x came back as %x", x, delivered)
			}
		}
	})
}
