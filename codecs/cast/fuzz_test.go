package cast

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 0x3c, 0, 0x7c}, uint16(2))
	f.Fuzz(func(t *testing.T, src []byte, n uint16) {
		for _, d := range types {
			dec, err := mustNew(t, d).NewDecoder(tensor.Float32, int(n))
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, 4*int(n))
			if err := dec.Decode(dst, src); err != nil {
				if !errors.Is(err, codecs.ErrCorrupt) {
					t.Fatal(err)
				}
				continue
			}
			if again := through16(t, d, dst); string(again) != string(src) {
				t.Fatalf("%v: % x decodes to what encodes as % x", d, src, again)
			}
		}
	})
}

func through16(t *testing.T, d tensor.DType, src []byte) []byte {
	t.Helper()
	e, err := mustNew(t, d).NewEncoder(tensor.Float32, len(src)/4)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Append(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzRoundTrip: the delivered value is the value rounded by tensor.Round, or the block is unsuited.
func FuzzRoundTrip(f *testing.F) {
	for _, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 40, 1))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		src = src[:len(src)/4*4]
		for _, d := range types {
			want := make([]byte, len(src)/2)
			x := make([]float32, len(src)/4)
			tensor.ToFloat32(x, src, tensor.Float32)
			suited := true
			for _, v := range x {
				suited = suited && finite(v)
			}
			tensor.Round(x, d)
			tensor.FromFloat32(want, x, d)
			e, err := mustNew(t, d).NewEncoder(tensor.Float32, len(x))
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Append(nil, src)
			if (err == nil) != suited || err == nil && string(got) != string(want) {
				t.Fatalf("%v: % x becomes % x, %v; want % x", d, src, got, err, want)
			}
		}
	})
}
