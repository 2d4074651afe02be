package skcompress

import (
	"cmp"
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// configs are the configurations that fuzzing goes through.
var configs = []Config{
	{Q: 8, R: 3}, {Q: 8, R: 2, Mode: Sparse, Block: 30}, {Q: 5, Mode: Dense, Rows: 1, Cols: 1}, {Q: 6, Mode: Joint, Rows: 3, Cols: 0.1},
}

// FuzzDecode: any bytes are finite values or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	var cs []codecs.Codec
	for _, c := range configs {
		cs = append(cs, mustNew(f, c))
	}
	codectest.FuzzDecode(f, nil, cs...)
}

// FuzzRoundTrip: every encoding decodes to values with the right signs, and no value that is not finite is encoded.
func FuzzRoundTrip(f *testing.F) {
	for i := range configs {
		for _, k := range codectest.Kinds() {
			f.Add(k.Fill(tensor.Float32, 80, 1), byte(i))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, which byte) {
		m := mustMethod(t, configs[int(which)%len(configs)])
		n := len(src) / 4
		x, y := make([]float32, n), make([]float32, n)
		tensor.ToFloat32(x, src[:4*n], tensor.Float32)
		largest := float32(0)
		for _, v := range x {
			largest = max(largest, float32(math.Abs(float64(v)))) // a NaN stays
		}
		encoded, err := encoder{m, n}.Append([]byte{7}, x)
		if finite := largest <= math.MaxFloat32; err != nil {
			if !errors.Is(err, codecs.ErrUnsuited) || len(encoded) != 1 {
				t.Fatal(err)
			}
			return
		} else if !finite {
			t.Fatalf("%v is encoded", largest)
		}
		if len(encoded)-1 > m.MaxEncodedLen(n) {
			t.Fatalf("%d values took %d bytes, MaxEncodedLen says %d", n, len(encoded)-1, m.MaxEncodedLen(n))
		}
		if err := (decoder{m, n}).Decode(y, encoded[1:]); err != nil {
			t.Fatalf("decoding % x: %v", encoded[1:], err)
		}
		for i := range x {
			if (m.Mode != Joint && cmp.Compare(x[i], 0) != cmp.Compare(y[i], 0)) || float32(math.Abs(float64(y[i]))) > largest {
				t.Fatalf("value %d, %v, is delivered as %v", i, x[i], y[i])
			}
		}
	})
}
