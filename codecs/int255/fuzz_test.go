package int255

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// FuzzDecode: any bytes are finite values or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x7f\x80"), uint16(2), byte(0))
	codectest.FuzzDecode(f, nil, mustNew(f, Config{Block: 10}))
}

// FuzzRoundTrip: every encoding can be decoded.
func FuzzRoundTrip(f *testing.F) {
	for _, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 40, 1), uint16(11))
	}
	f.Fuzz(func(t *testing.T, src []byte, block uint16) {
		src = src[:len(src)/4*4]
		codec := mustNew(t, Config{Block: 1 + int(block)})
		e, err := codec.NewEncoder(tensor.Float32, len(src)/4)
		if err != nil {
			t.Fatal(err)
		}
		d, err := codec.NewDecoder(tensor.Float32, len(src)/4)
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.Append(nil, src)
		if err != nil {
			if !errors.Is(err, codecs.ErrUnsuited) {
				t.Fatal(err)
			}
			return
		}
		if err := d.Decode(make([]byte, len(src)), b); err != nil {
			t.Fatal(err)
		}
	})
}
