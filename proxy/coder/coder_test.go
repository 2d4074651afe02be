package coder

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/tensor"
)

// An encoder that fails in turn as its errors say: nil for no failure, errPanic for a panic.
type failing struct {
	errs  []error
	calls int
}

var errPanic = errors.New("panic")

func (f *failing) Append(dst, src []byte) ([]byte, error) {
	err := f.errs[f.calls]
	f.calls++
	switch err {
	case nil:
		return append(append(dst, byte(f.calls)), src...), nil
	case errPanic:
		panic("broken")
	}
	return append(dst, "garbage"...), err
}

// A block that its codec does not take travels raw; one that the codec breaks on travels raw too, and then all that
// follow do, since the encoder's state is unknown.
func TestEncode(t *testing.T) {
	defect := errors.New("defect")
	for _, c := range []struct {
		name  string
		errs  []error
		coded []bool // of each block
		calls int
	}{
		{"good", []error{nil, nil}, []bool{true, true}, 2},
		{"unsuited", []error{nil, codecs.ErrUnsuited, nil}, []bool{true, false, true}, 3},
		{"defect", []error{nil, defect, nil, nil}, []bool{true, false, false, false}, 2},
		{"panic", []error{errPanic, nil, nil}, []bool{false, false, false}, 1},
		{"panic later", []error{nil, errPanic, nil, nil}, []bool{true, false, false, false}, 2},
	} {
		var s Slot
		enc := &failing{errs: c.errs}
		for i, coded := range c.coded {
			turn := s.Next()
			turn.Begin()
			dst := append(make([]byte, 0, 100), "header"...)
			head := len(dst)
			src := []byte{byte(i), 7, 7, 7}
			body, err := s.Encode(append(dst, frame.FormCoded), head, enc, src)
			turn.End()
			want := append([]byte("header"), frame.FormRaw)
			if coded {
				want = append([]byte("header"), frame.FormCoded, byte(enc.calls))
			}
			if want = append(want, src...); !bytes.Equal(body, want) || coded != (err == nil) {
				t.Errorf("%s: block %d is %q, %v; want %q", c.name, i, body, err, want)
			}
			if &body[0] != &dst[0] {
				t.Errorf("%s: block %d does not lie where there was room for it", c.name, i)
			}
		}
		if enc.calls != c.calls {
			t.Errorf("%s: the encoder was called %d times, want %d: a broken one must not be used again", c.name, enc.calls, c.calls)
		}
	}
}

type panicking struct{}

func (panicking) Decode(dst, src []byte) error { panic("broken") }

// Blocks decode to their elements; all others are errors that reset the connection.
func TestDecode(t *testing.T) {
	c, err := all.New("lossless")
	if err != nil {
		t.Fatal(err)
	}
	enc, _ := c.NewEncoder(tensor.Float32, 64)
	dec, _ := c.NewDecoder(tensor.Float32, 64)
	elements := make([]byte, 256)
	encoded, err := enc.Append(nil, elements)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []struct {
		name string
		form byte
		dec  codecs.Decoder
		src  []byte
		ok   bool
	}{
		{"coded", frame.FormCoded, dec, encoded, true},
		{"raw", frame.FormRaw, dec, elements, true},
		{"garbage", frame.FormCoded, dec, []byte{0xff, 0xff, 0xff}, false},
		{"empty", frame.FormCoded, dec, nil, false},
		{"raw, cut short", frame.FormRaw, dec, elements[1:], false},
		{"raw, too long", frame.FormRaw, dec, append(elements, 0), false},
		{"of the reverse form, which only the value cache understands", frame.FormReverse, dec, encoded, false},
		{"of an unknown form", 77, dec, encoded, false},
		{"that its decoder breaks on", frame.FormCoded, panicking{}, encoded, false},
	} {
		dst := bytes.Repeat([]byte{9}, 256)
		err := Decode(dst, b.form, b.dec, b.src, "lossless")
		if b.ok && (err != nil || !bytes.Equal(dst, elements)) || !b.ok && !errors.Is(err, frame.ErrFrame) {
			t.Errorf("a block %s: %v", b.name, err)
		}
	}
}

// Turns come in the order of Next, whoever begins first.
func TestTurns(t *testing.T) {
	var turns Turns
	var order []int
	var all sync.WaitGroup
	var taken []Ticket
	for range 20 {
		taken = append(taken, turns.Next())
	}
	for i, turn := range slices.Backward(taken) {
		all.Go(func() {
			turn.Begin()
			order = append(order, i)
			turn.End()
		})
	}
	all.Wait()
	if len(order) != 20 || !slices.IsSorted(order) {
		t.Errorf("turns came in the order %v", order)
	}
}

// A turn that is awaited has ended, and copies of Turns go on in the same order.
func TestTurnsAreAwaited(t *testing.T) {
	var turns Turns
	first := turns.Next()
	copied := turns
	second := copied.Next()
	var ended []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		second.Await()
		ended = append(ended, "awaited")
	}()
	go func() {
		second.Begin()
		ended = append(ended, "second")
		second.End()
	}()
	first.Begin()
	ended = append(ended, "first")
	first.End()
	first.Await()
	<-done
	if want := []string{"first", "second", "awaited"}; !slices.Equal(ended, want) {
		t.Errorf("%v, want %v", ended, want)
	}
}

// A peer that declares many codecs makes a proxy keep a few.
func TestCodecsAreBounded(t *testing.T) {
	made := 0
	c := Codecs{New: func(text string) (codecs.Codec, error) { made++; return all.New("lossless") }}
	for i := range 10 * maxTexts {
		if _, err := c.Get(string(rune('a' + i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.known) != maxTexts {
		t.Errorf("%d codecs are kept, want %d", len(c.known), maxTexts)
	}
	if c.Get("a"); made != 10*maxTexts {
		t.Error("a codec that is kept was made again")
	}
	c.New = func(string) (codecs.Codec, error) { return nil, errors.New("unknown") }
	if _, err := c.Get("nonsense"); err == nil {
		t.Error("an unknown codec is no error")
	}
}
