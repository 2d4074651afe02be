package reference_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

// Weights that train, pulled at every step, shrink far more than by the codec alone. The difference of integers is the
// form that is taken, at every step.
func TestWeightsThatTrain(t *testing.T) {
	require.OneGoroutine(t)
	maximum := map[tensor.DType]float64{tensor.Float32: 0.78, tensor.Float16: 0.72, tensor.BFloat16: 0.58}
	for _, by := range []struct{ rate, momentum float32 }{{0.01, 0}, {0.1, 0}, {0.01, 0.9}, {0.1, 0.9}} {
		n := newNetwork()
		c := mustNew(t, "lossless")
		pulls := map[tensor.DType]*ends{}
		sizes, alone := map[tensor.DType]int{}, map[tensor.DType]int{}
		for d := range maximum {
			pulls[d] = sameDirection(t, c, d, len(n.w))
		}
		const first, last = 5, 20
		for step := range last {
			n.step(by.rate, by.momentum)
			for d, e := range pulls {
				x := make([]byte, len(n.w)*d.Size())
				tensor.FromFloat32(x, n.w, d)
				delivered, encoded := e.send(t, x)
				if !bytes.Equal(delivered, x) {
					t.Fatalf("step %d: the weights changed", step)
				}
				if step < first {
					continue
				}
				if encoded == nil || encoded[0] != 2 {
					t.Fatalf("%v, step %d: not coded as a difference but as form % x", d, step, encoded[:min(1, len(encoded))])
				}
				sizes[d] += len(encoded)
				alone[d] += len(encode(t, c, d, x))
			}
		}
		for d, limit := range maximum {
			raw := float64((last - first) * len(n.w) * d.Size())
			ratio, without := float64(sizes[d])/raw, float64(alone[d])/raw
			t.Logf("rate %v, momentum %v, %v: %.3f of the bytes, %.3f without reference", by.rate, by.momentum, d, ratio, without)
			if ratio > limit || ratio > 0.95*without {
				t.Errorf("rate %v, momentum %v, %v: %.3f of the bytes, want at most %.2f and 0.95 of %.3f", by.rate, by.momentum, d, ratio, limit, without)
			}
		}
	}
}

// encode returns the encoding of x by c alone, or x itself if it is unsuited.
func encode(t testing.TB, c codecs.Codec, d tensor.DType, x []byte) []byte {
	t.Helper()
	e, err := c.NewEncoder(d, len(x)/d.Size())
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Append(nil, x)
	if errors.Is(err, codecs.ErrUnsuited) {
		return x
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Each form is taken where it is the shortest.
func TestFormIsTheShortest(t *testing.T) {
	const n = 8192
	gauss := func(d tensor.DType, seed uint64) []byte { return codectest.Gaussian.Fill(d, n, seed) }
	signs := func(b []byte, size int) []byte { // turned in every third element
		b = bytes.Clone(b)
		for i := size - 1; i < len(b); i += 3 * size {
			b[i] ^= 0x80
		}
		return b
	}
	for _, c := range []struct {
		name    string
		d       tensor.DType
		held, x []byte
		form    byte
		limit   int // bytes
	}{
		{"nothing held", tensor.Float32, nil, gauss(tensor.Float32, 1), 0, 4 * n},
		{"the same", tensor.Float32, gauss(tensor.Float32, 1), gauss(tensor.Float32, 1), 2, 40},
		{"the same, unknown", tensor.NoDType, gauss(tensor.Float32, 1)[:n], gauss(tensor.Float32, 1)[:n], 1, 40},
		{"another tensor", tensor.Float32, gauss(tensor.Float32, 1), gauss(tensor.Float32, 2), 0, 4 * n},
		{"zeros", tensor.Float32, gauss(tensor.Float32, 1), make([]byte, 4*n), 0, 40},
		{"one step", tensor.Float32, gauss(tensor.Float32, 1), step(gauss(tensor.Float32, 1), 1e-3), 2, 3 * n},
		{"one step, unknown", tensor.NoDType, gauss(tensor.Float32, 1)[:n], step(gauss(tensor.Float32, 1)[:n], 1e-3), 1, 3 * n / 4},
		{"signs, float32", tensor.Float32, gauss(tensor.Float32, 1), signs(gauss(tensor.Float32, 1), 4), 1, n / 2},
		{"signs, float64", tensor.Float64, gauss(tensor.Float64, 1), signs(gauss(tensor.Float64, 1), 8), 1, n / 2},
		{"integers", tensor.Int64, codectest.Keys.Fill(tensor.Int64, n, 1), codectest.Keys.Fill(tensor.Int64, n, 1), 2, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := sameDirection(t, mustNew(t, "lossless"), c.d, len(c.x)/c.d.Size())
			if c.held != nil {
				e.near.Set(c.held)
				e.far.Set(c.held)
			}
			_, encoded := e.send(t, c.x)
			if encoded == nil || encoded[0] != c.form || len(encoded) > c.limit {
				t.Errorf("form % x, %d bytes", encoded[:min(1, len(encoded))], len(encoded))
			}
		})
	}
}

// An update of local training is further from the model that it began with than one step is, and still nearer than
// nothing.
func TestUpdateAgainstModel(t *testing.T) {
	n := newNetwork()
	c := mustNew(t, "lossless")
	size := 4 * len(n.w)
	server, client := reference.NewCopy(size, 0), reference.NewCopy(size, 0)
	down := between(t, c, tensor.Float32, server, client, server, client)
	up := between(t, c, tensor.Float32, client, server, nil, nil)
	for round := range 3 {
		model := make([]byte, size)
		tensor.FromFloat32(model, n.w, tensor.Float32)
		down.send(t, model)
		for range 30 {
			n.step(0.01, 0.9)
		}
		update := make([]byte, size)
		tensor.FromFloat32(update, n.w, tensor.Float32)
		_, encoded := up.send(t, update)
		ratio, without := float64(len(encoded))/float64(size), float64(len(encode(t, c, tensor.Float32, update)))/float64(size)
		t.Logf("round %d: %.3f of the bytes, %.3f without reference", round, ratio, without)
		if encoded == nil || ratio > 0.98*without {
			t.Errorf("round %d: %.3f of the bytes, %.3f without reference", round, ratio, without)
		}
	}
}

// Around a codec that takes no differences, of keys, blocks are coded whole where differences would be shorter.
func TestKeysAreCodedWhole(t *testing.T) {
	c := mustNew(t, "rice")
	e := sameDirection(t, c, tensor.Uint64, 500)
	for step := range uint64(3) {
		var x []byte
		for i := range uint64(500) {
			x = binary.LittleEndian.AppendUint64(x, 1000+step+3*i)
		}
		delivered, encoded := e.send(t, x)
		if !bytes.Equal(delivered, x) || encoded == nil || encoded[0] != 0 || len(encoded) > 300 {
			t.Errorf("step %d: %d bytes, begun with % x", step, len(encoded), encoded[:min(1, len(encoded))])
		}
	}
}
