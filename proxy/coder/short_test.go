package coder

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/tensor"
)

func codec(t testing.TB, text string) codecs.Codec {
	t.Helper()
	c, err := all.New(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// embedding returns gradients of an embedding: rows of width values; a share of the rows are not zero.
func embedding(rnd *rand.Rand, rows, width int, share float64) []byte {
	x := make([]float32, rows*width)
	for r := range rows {
		if rnd.Float64() < share {
			for i := range width {
				x[r*width+i] = float32(rnd.NormFloat64()) * 1e-3
			}
		}
	}
	b := make([]byte, 4*len(x))
	tensor.RoundTo(b, x, tensor.Float32)
	return b
}

// encoded returns the encoding of steps of a tensor with feedback, one after another, and the size of the last without
// loss.
func encoded(t testing.TB, c codecs.Codec, steps ...[]byte) (encoding []byte) {
	t.Helper()
	n := len(steps[0]) / 4
	e, err := feedback.NewEncoder(c, tensor.Float32, make([]float32, n))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range steps {
		if encoding, err = e.Append(nil, b); err != nil {
			t.Fatal(err)
		}
	}
	return encoding
}

// A sparse gradient is smaller by int4 and int8 than without loss, and its encoding comes back whole. A dense one is
// not looked at twice. The number of elements does not matter: where it is a power of two, scales stand at even
// distances.
func TestShort(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, text := range []string{"int4", "int8", "int4(block=64)", "int4(block=99)"} {
		c := codec(t, text)
		for i, share := range []float64{0, 0.001, 0.01, 0.01, 0.02, 0.05, 0.09, 0.15, 0.3, 1} {
			rows, width := 8000+192*(i%2), 8
			var steps [][]byte
			for range 5 {
				steps = append(steps, embedding(rnd, rows, width, share))
			}
			encoding := encoded(t, c, steps...)
			if !shortens(c, encoding) {
				if share < 0.1 {
					t.Errorf("%s, %.0f %% of the rows: not looked at", text, 100*share)
				}
				continue
			}
			short, ok := appendShort(nil, c, encoding)
			back, err := Lengthen(nil, short, len(encoding))
			if err != nil || !bytes.Equal(back, encoding) {
				t.Fatalf("%s, %.0f %% of the rows: comes back as %d bytes, %v", text, 100*share, len(back), err)
			}
			le, err := codec(t, "lossless").NewEncoder(tensor.Float32, rows*width)
			if err != nil {
				t.Fatal(err)
			}
			lossless, err := le.Append(nil, steps[4])
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %.0f %% of the rows: %d bytes, %d with all codes, %d without loss, %v", text, 100*share, len(short), len(encoding), len(lossless), ok)
			if text == c.String() && len(text) == 4 && !NearlyZero(c, tensor.Float32, steps[4]) && (!ok || len(short) > len(lossless)) {
				t.Errorf("%s, %.0f %% of the rows: %d bytes, %d without loss", text, 100*share, len(short), len(lossless))
			}
		}
	}
	if c := codec(t, "int4"); shortens(c, encoded(t, c, embedding(rnd, 1000, 64, 1))) {
		t.Error("a dense gradient is looked at twice")
	}
}

// The short form takes the place of an encoding alone: the bytes before the encoding stay, and the body's form says so.
// A block of no zeros stays as it is.
func TestShortenBlock(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	c, pool := codec(t, "int8"), new(memory.Pool)
	const rows, width = 1000, 8
	encoding := encoded(t, c, embedding(rnd, rows, width, 0.02))
	want := make([]byte, 4*rows*width)
	newDecoder := func() codecs.Decoder {
		d, err := c.NewDecoder(tensor.Float32, rows*width)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if err := Decode(want, frame.FormCoded, newDecoder(), encoding, "int8"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		form, short byte
		head        string
	}{{frame.FormCoded, frame.FormShort, ""}, {frame.FormSummed, frame.FormSummedShort, "four"}} {
		before := "room" + string(tt.form) + tt.head
		body := ShortenBlock(c, append([]byte(before), encoding...), 4, len(tt.head), pool)
		if begin := "room" + string(tt.short) + tt.head; !bytes.HasPrefix(body, []byte(begin)) || len(body) > len(encoding)/2 {
			t.Fatalf("form %d: %d bytes of %d, which begin with %q", tt.form, len(body), len(encoding), body[:len(begin)])
		}
		got, dec := make([]byte, len(want)), headless{newDecoder(), tt.head}
		if err := DecodeShort(got, dec, body[5:], len(tt.head), len(encoding), "int8", pool); err != nil || !bytes.Equal(got, want) {
			t.Errorf("form %d: other values, %v", tt.form, err)
		}
		if err := DecodeShort(got, dec, body[5:], len(tt.head), len(encoding)-1, "int8", pool); !errors.Is(err, frame.ErrFrame) {
			t.Errorf("form %d: an encoding that is too long: %v", tt.form, err)
		}
	}
	dense := append([]byte{frame.FormCoded}, encoded(t, c, embedding(rnd, rows, width, 1))...)
	if body := ShortenBlock(c, bytes.Clone(dense), 0, 0, pool); !bytes.Equal(body, dense) {
		t.Error("the block of a dense gradient changes")
	}
}

// A headless decoder decodes the bytes behind a head.
type headless struct {
	codecs.Decoder
	head string
}

func (h headless) Decode(dst, src []byte) error {
	rest, ok := bytes.CutPrefix(src, []byte(h.head))
	if !ok {
		return errors.New("another head")
	}
	return h.Decoder.Decode(dst, rest)
}

// FuzzLengthen: any bytes are an encoding of bounded length, or an error that resets the connection; and any encoding
// comes back.
func FuzzLengthen(f *testing.F) {
	f.Add([]byte("\x88\x21\x84\x01\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x80\x3f"))
	f.Add(bytes.Repeat([]byte{0x88}, 5000))
	f.Add([]byte{0, 0, 3, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 16
		if got, err := Lengthen(nil, b, limit); len(got) > limit || err != nil && !errors.Is(err, frame.ErrFrame) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		for _, text := range []string{"int4", "int8"} {
			short, _ := appendShort(nil, codec(t, text), b)
			if len(short) < len(b) {
				if back, err := Lengthen(nil, short, len(b)); err != nil || !bytes.Equal(back, b) {
					t.Fatalf("%s: %x comes back as %x, %v", text, b, back, err)
				}
			}
		}
	})
}

// BenchmarkShortens measures the look at a dense encoding, beside the encoding itself.
func BenchmarkShortens(b *testing.B) {
	c := codec(b, "int4")
	x := embedding(rand.New(rand.NewPCG(1, 2)), 1024, 64, 1)
	encoding := encoded(b, c, x)
	e, err := feedback.NewEncoder(c, tensor.Float32, make([]float32, len(x)/4))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			shortens(c, encoding)
		}
	})
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			encoding, _ = e.Append(encoding[:0], x)
		}
	})
}
