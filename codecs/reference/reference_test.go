package reference_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

// referenced is a Codec with coders that begin with a Copy of one value, if begins, and keep it in the same direction.
// It takes only some types.
type referenced struct {
	codecs.Codec
	begins bool
	types  []tensor.DType
}

func (r referenced) MaxEncodedLen(n int) int { return r.Codec.MaxEncodedLen(n) + reference.Overhead }

func (r referenced) held(d tensor.DType, n int) (*reference.Copy, error) {
	if !slices.Contains(r.types, d) {
		return nil, codecs.ErrUnsuited
	}
	c := reference.NewCopy(n*d.Size(), 0)
	if r.begins {
		c.Set(codectest.Gaussian.Fill(d, n, 1))
	}
	return c, nil
}

func (r referenced) NewEncoder(d tensor.DType, n int) (codecs.Encoder, error) {
	c, err := r.held(d, n)
	if err != nil {
		return nil, err
	}
	return reference.NewEncoder(r.Codec, d, c, c)
}

func (r referenced) NewDecoder(d tensor.DType, n int) (codecs.Decoder, error) {
	c, err := r.held(d, n)
	if err != nil {
		return nil, err
	}
	return reference.NewDecoder(r.Codec, d, c, c)
}

// Coders keep the promises of codecs.Codec: around codecs of both families, for elements of every width.
func TestConformance(t *testing.T) {
	widths := []tensor.DType{tensor.NoDType, tensor.Float16, tensor.Int64}
	for _, c := range []struct {
		name, text string
		begins     bool
		types      []tensor.DType
	}{
		{"lossless", "lossless", true, widths},
		{"nothing held", "lossless", false, floats[:1]},
		{"3lc", "3lc(s=1.75,block=100)", true, floats[:2]},
		{"int8", "int8", true, floats[2:3]},
	} {
		t.Run(c.name, func(t *testing.T) {
			codec := referenced{mustNew(t, c.text), c.begins, c.types}
			codectest.Run(t, codec, nil)
			codectest.Concurrent(t, codec)
		})
	}
}

// Types and sizes that a codec does not take are unsuited, also when a peer declares them.
func TestUnsuitedCoders(t *testing.T) {
	of := func(size int) *reference.Copy { return reference.NewCopy(size, 0) }
	for _, c := range []struct {
		text     string
		d        tensor.DType
		from, to *reference.Copy
	}{
		{"lossless", tensor.Float32, of(10), nil},
		{"lossless", tensor.Float32, of(8), of(12)},
		{"lossless", 200, of(8), nil},
		{"int8", tensor.Int32, of(8), nil},
		{"int8", 200, of(8), nil},
		{"3lc", tensor.NoDType, of(8), nil},
	} {
		_, err1 := reference.NewEncoder(mustNew(t, c.text), c.d, c.from, c.to)
		_, err2 := reference.NewDecoder(mustNew(t, c.text), c.d, c.from, c.to)
		if !errors.Is(err1, codecs.ErrUnsuited) || !errors.Is(err2, codecs.ErrUnsuited) {
			t.Errorf("%s, %d: %v, %v, want ErrUnsuited", c.text, c.d, err1, err2)
		}
	}
}

// A receiver with another copy than the sender's says so, before it delivers or changes anything.
func TestWrongReference(t *testing.T) {
	const n = 4096
	for _, text := range []string{"lossless", "int8"} {
		for name, damage := range map[string]func(e *ends, encoded []byte){
			"another value":   func(e *ends, _ []byte) { e.far.Drop(); e.far.Set(codectest.Gaussian.Fill(tensor.Float32, n, 8)) },
			"one bit of it":   func(e *ends, _ []byte) { b := e.far.AppendTo(nil); b[n] ^= 1; e.far.Drop(); e.far.Set(b) },
			"nothing":         func(e *ends, _ []byte) { e.far.Drop() },
			"a later version": func(e *ends, _ []byte) { e.far.Set(e.far.AppendTo(nil)) },
			"a wrong version": func(_ *ends, encoded []byte) { encoded[1]++ },
			"no version":      func(_ *ends, encoded []byte) { encoded[1] = 0 },
			"a wrong hash":    func(_ *ends, encoded []byte) { encoded[9] ^= 0x10 },
		} {
			t.Run(text+"/"+name, func(t *testing.T) {
				e := sameDirection(t, mustNew(t, text), tensor.Float32, n)
				first := codectest.Gaussian.Fill(tensor.Float32, n, 7)
				e.near.Set(first)
				e.far.Set(first)
				encoded, err := e.enc.Append(nil, step(first, 1e-3))
				if err != nil {
					t.Fatal(err)
				}
				damage(e, encoded)
				before, version := e.far.AppendTo(nil), e.far.Version()
				err = e.dec.Decode(make([]byte, len(first)), encoded)
				if !errors.Is(err, reference.ErrReference) || !errors.Is(err, codecs.ErrCorrupt) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, want ErrReference", err)
				}
				if !bytes.Equal(before, e.far.AppendTo(nil)) || e.far.Version() != version {
					t.Error("the copy changed")
				}
			})
		}
	}
}

// step returns float32 elements that lie a little from b's.
func step(b []byte, by float32) []byte {
	v := make([]float32, len(b)/4)
	tensor.ToFloat32(v, b, tensor.Float32)
	for i := range v {
		v[i] += by * v[(i*7+3)%len(v)]
	}
	out := make([]byte, len(b))
	tensor.FromFloat32(out, v, tensor.Float32)
	return out
}

// A broken encoding of a right reference leaves the copy alone, so nothing but the connection is lost.
func TestCorruptLeavesCopy(t *testing.T) {
	const n = 4096
	for _, text := range []string{"lossless", "int8"} {
		e := sameDirection(t, mustNew(t, text), tensor.Float32, n)
		first := codectest.Gaussian.Fill(tensor.Float32, n, 7)
		e.near.Set(first)
		e.far.Set(first)
		encoded, err := e.enc.Append(nil, step(first, 1e-3))
		if err != nil {
			t.Fatal(err)
		}
		err = e.dec.Decode(make([]byte, len(first)), encoded[:len(encoded)-1])
		if !errors.Is(err, codecs.ErrCorrupt) || errors.Is(err, reference.ErrReference) {
			t.Errorf("%s: %v, want ErrCorrupt but not ErrReference", text, err)
		}
		if e.far.Version() != 1 || !bytes.Equal(e.far.AppendTo(nil), first) {
			t.Errorf("%s: the copy changed", text)
		}
	}
}

// A model goes down and its update comes up. The update is coded against the model, and kept or not. The server's end
// may have sent another model before the update arrives: it has to keep the one before.
func TestOppositeDirection(t *testing.T) {
	const n = 4096
	size := 4 * n
	for _, text := range []string{"lossless", "int8"} {
		for _, kept := range []bool{false, true} {
			server, client := reference.NewCopy(size, 1), reference.NewCopy(size, 0)
			down := between(t, mustNew(t, text), tensor.Float32, server, client, server, client)
			var nearKept, farKept *reference.Copy
			if kept {
				nearKept, farKept = reference.NewCopy(size, 0), reference.NewCopy(size, 0)
			}
			up := between(t, mustNew(t, text), tensor.Float32, client, server, nearKept, farKept)

			model := codectest.Gaussian.Fill(tensor.Float32, n, 3)
			for round := range 4 {
				model, _ = down.send(t, step(model, 1e-2))
				version := client.Version()
				update := step(model, 1e-2)
				delivered, encoded := up.send(t, update)
				if encoded == nil || text == "lossless" && !bytes.Equal(delivered, update) {
					t.Fatalf("%s: round %d: the update was not coded, or changed", text, round)
				}
				if client.Version() != version || !bytes.Equal(client.AppendTo(nil), model) || !bytes.Equal(server.AppendTo(nil), model) {
					t.Fatalf("%s: round %d: an update changed the model", text, round)
				}
			}

			late, err := up.enc.Append(nil, step(model, 2e-2))
			if err != nil {
				t.Fatal(err)
			}
			for ahead := range 2 {
				if _, err := down.enc.Append(nil, step(model, 3e-2)); err != nil {
					t.Fatal(err)
				}
				err := up.dec.Decode(make([]byte, size), late)
				if ahead == 0 && err != nil || ahead == 1 && !errors.Is(err, reference.ErrReference) {
					t.Errorf("%s: the server is %d models ahead, and keeps 1: %v", text, ahead+1, err)
				}
			}
		}
	}
}

// Both directions run at a time; run with -race.
func TestConcurrent(t *testing.T) {
	const n, rounds = 2048, 40
	for _, text := range []string{"lossless", "int8"} {
		server, client := reference.NewCopy(4*n, rounds), reference.NewCopy(4*n, 0)
		first := codectest.Gaussian.Fill(tensor.Float32, n, 3)
		server.Set(first)
		client.Set(first)
		down := between(t, mustNew(t, text), tensor.Float32, server, client, server, client)
		up := between(t, mustNew(t, text), tensor.Float32, client, server, nil, nil)
		var wg sync.WaitGroup
		for _, e := range []*ends{down, up} {
			wg.Go(func() {
				x := first
				for range rounds - 1 {
					x = step(x, 1e-3)
					encoded, err := e.enc.Append(nil, x)
					if err != nil {
						t.Error(err)
						return
					}
					if err := e.dec.Decode(make([]byte, len(x)), encoded); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// In the steady state, neither end allocates.
func TestNoAllocations(t *testing.T) {
	if require.Race {
		t.Skip("with -race, pools drop some of what is put into them")
	}
	const n = 5000
	for _, text := range []string{"lossless", "3lc", "int8", "int4"} {
		for _, d := range floats {
			e := sameDirection(t, mustNew(t, text), d, n)
			var values [2][]byte
			for i := range values {
				values[i] = make([]byte, n*d.Size())
				tensor.FromFloat32(values[i], tensor.View(step(codectest.Gaussian.Fill(tensor.Float32, n, 3), float32(i)*1e-3)), d)
			}
			e.send(t, values[0])
			e.near.Set(values[0])
			e.far.Set(values[0])
			dst, back := make([]byte, 0, 9*n+64), make([]byte, n*d.Size())
			i := 0
			allocs := testing.AllocsPerRun(50, func() {
				i++
				encoded, err := e.enc.Append(dst, values[i%2])
				if err != nil {
					t.Fatal(err)
				}
				if err := e.dec.Decode(back, encoded); err != nil {
					t.Fatal(err)
				}
			})
			if allocs >= 1 {
				t.Errorf("%s, %v: %v allocations a step", text, d, allocs)
			}
		}
	}
}

// An encoding names its reference as the package comment says.
func TestHeader(t *testing.T) {
	const n = 64
	c := reference.NewCopy(4*n, 0)
	for range 300 {
		c.Set(make([]byte, 4*n))
	}
	enc, err := reference.NewEncoder(mustNew(t, "int8"), tensor.Float32, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := enc.Append(nil, make([]byte, 4*n))
	if err != nil {
		t.Fatal(err)
	}
	version, k := binary.Uvarint(b[1:])
	if b[0] != 3 || version != 300 || k != 2 || len(b) != 1+2+8+mustNew(t, "int8").MaxEncodedLen(n) {
		t.Errorf("encoded as %x", b)
	}
}
