// Package codectest checks that a codec keeps the promises of package codecs. Every codec's tests call [Run], mostly
// through a [Suite], and add the identities of the paper and the wire form.
package codectest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

// Run checks c. parse makes a codec of a text; nil if c has no text of its own.
func Run(t *testing.T, c codecs.Codec, parse func(string) (codecs.Codec, error)) {
	t.Run("text", func(t *testing.T) { text(t, c, parse) })
	t.Run("block", func(t *testing.T) { block(t, c) })
	t.Run("traits", func(t *testing.T) { traits(t, c) })
	taken := 0
	for _, d := range append(tensor.DTypes(), tensor.NoDType) {
		if _, err := c.NewEncoder(d, 256); errors.Is(err, codecs.ErrUnsuited) {
			if _, err := c.NewDecoder(d, 256); !errors.Is(err, codecs.ErrUnsuited) {
				t.Errorf("%v: there is no encoder, but NewDecoder: %v", d, err)
			}
			continue
		}
		taken++
		t.Run(d.String(), func(t *testing.T) {
			s := suite{t, c, d}
			t.Run("values", s.values)
			t.Run("lengths", s.lengths)
			t.Run("src", s.keepsSource)
			t.Run("dst", s.keepsPrefix)
			t.Run("every element", s.setsEveryElement)
			t.Run("unaligned", s.unaligned)
			t.Run("unsuited", s.unsuitedLeavesState)
			t.Run("corrupt", s.corrupt)
			t.Run("feedback", s.feedback)
		})
	}
	if taken == 0 {
		t.Error("the codec takes no element type")
	}
}

func text(t *testing.T, c codecs.Codec, parse func(string) (codecs.Codec, error)) {
	if parse == nil {
		return
	}
	again, err := parse(c.String())
	if err != nil || again.String() != c.String() {
		t.Fatalf("%q parsed is %v, %v", c, again, err)
	}
	if got, want := again.Traits(), c.Traits(); got.Lossless != want.Lossless || got.Unbiased != want.Unbiased ||
		fmt.Sprint(got.Keys) != fmt.Sprint(want.Keys) {
		t.Errorf("%q has traits %+v, and %+v after parsing", c, want, got)
	}
	a, err := codecs.ParseText(c.String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(a.Name + "(no_such_parameter=1)"); !errors.Is(err, codecs.ErrText) {
		t.Errorf("a parameter that does not exist: %v, want ErrText", err)
	}
}

func block(t *testing.T, c codecs.Codec) {
	for size := 1; size < 1<<30; size = size*3 + 1 {
		if b := c.Block(size); b < 1 || b > size {
			t.Errorf("Block(%d) = %d", size, b)
		}
	}
	for n, last := 0, 0; n < 1<<24; n = n*3 + 1 {
		if m := c.MaxEncodedLen(n); m < last {
			t.Errorf("MaxEncodedLen(%d) = %d, but less for fewer", n, m)
		} else {
			last = m
		}
	}
}

// traits checks the traits by themselves; check compares Lossless with every block.
func traits(t *testing.T, c codecs.Codec) {
	p := c.Traits()
	if p.Lossless && p.Unbiased {
		t.Error("a lossless codec is unbiased: then its error could be larger than the value")
	}
	if p.Keys == nil {
		return
	}
	if !p.Keys.Traits().Lossless {
		t.Errorf("the codec of keys, %v, may lose something", p.Keys)
	}
	for _, d := range []tensor.DType{tensor.Int32, tensor.Uint32, tensor.Int64, tensor.Uint64} {
		if _, err := p.Keys.NewEncoder(d, 256); err != nil {
			t.Errorf("the codec of keys, %v, does not take %v: %v", p.Keys, d, err)
		}
	}
}

// A suite checks one codec on one element type.
type suite struct {
	*testing.T
	codec codecs.Codec
	dtype tensor.DType
}

// pair returns an encoder and decoder of n elements, which must exist as they do for 256.
func (s suite) pair(t *testing.T, n int) (codecs.Encoder, codecs.Decoder) {
	t.Helper()
	e, err := s.codec.NewEncoder(s.dtype, n)
	if err != nil {
		t.Fatalf("NewEncoder of %d elements: %v", n, err)
	}
	d, err := s.codec.NewDecoder(s.dtype, n)
	if err != nil {
		t.Fatalf("NewDecoder of %d elements: %v", n, err)
	}
	return e, d
}

// check encodes src, decodes that, and returns both; nil, nil if the encoder finds src unsuited.
func (s suite) check(t *testing.T, e codecs.Encoder, d codecs.Decoder, src []byte) (encoded, decoded []byte) {
	t.Helper()
	encoded, err := e.Append(nil, src)
	if errors.Is(err, codecs.ErrUnsuited) {
		return nil, nil
	}
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	n := len(src) / s.dtype.Size()
	if m := s.codec.MaxEncodedLen(n); len(encoded) > m {
		t.Fatalf("%d elements took %d bytes, MaxEncodedLen says %d", n, len(encoded), m)
	}
	decoded = make([]byte, len(src))
	if err := d.Decode(decoded, encoded); err != nil {
		t.Fatalf("Decode of the encoding by Append: %v", err)
	}
	if !codecs.Lossy(s.codec) && !bytes.Equal(src, decoded) {
		t.Fatalf("a lossless codec changed %s", difference(src, decoded))
	}
	return encoded, decoded
}

func difference(a, b []byte) string {
	for i := range a {
		if a[i] != b[i] {
			return fmt.Sprintf("byte %d of %d from %#02x to %#02x", i, len(a), a[i], b[i])
		}
	}
	return "nothing"
}

// Three values of one block, in a row, of every kind of data.
func (s suite) values(t *testing.T) {
	suited := false
	for _, k := range Kinds() {
		const n = 2500
		e, d := s.pair(t, n)
		for step := range 3 {
			encoded, _ := s.check(t, e, d, k.Fill(s.dtype, n, uint64(step)))
			suited = suited || encoded != nil
		}
	}
	if !suited {
		t.Error("every block is unsuited: then NewEncoder ought to say so")
	}
}

// Every length from none to a few hundred elements, and some around powers of two.
func (s suite) lengths(t *testing.T) {
	lengths := []int{512, 1023, 1025, 4095, 4097}
	last := 300
	if require.Race {
		last = 70
	} else {
		lengths = append(lengths, 1<<16+1)
	}
	for n := range last {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		for _, k := range []Kind{Gaussian, Rows, Keys}[n%3 : n%3+1] {
			e, d := s.pair(t, n)
			s.check(t, e, d, k.Fill(s.dtype, n, 1))
		}
	}
}

// Append must leave src as it was, and must not look at it again.
func (s suite) keepsSource(t *testing.T) {
	for _, k := range Kinds() {
		const n = 1601
		e1, d1 := s.pair(t, n)
		e2, d2 := s.pair(t, n)
		for step := range 3 {
			src := k.Fill(s.dtype, n, uint64(step))
			own := bytes.Clone(src)
			a, errA := e1.Append(nil, src)
			if !bytes.Equal(src, own) {
				t.Fatalf("%v: Append changed %s of src", k, difference(own, src))
			}
			for i := range src {
				src[i] = 0xa5
			}
			b, errB := e2.Append(nil, own)
			if !bytes.Equal(a, b) || (errA == nil) != (errB == nil) {
				t.Fatalf("%v: step %d: two encoders alike, one with src overwritten after each call, differ", k, step)
			}
			if errA != nil {
				continue
			}
			x, y := make([]byte, len(src)), make([]byte, len(src))
			if err := d1.Decode(x, a); err != nil {
				t.Fatal(err)
			}
			for i := range a {
				a[i] = 0x5a
			}
			if err := d2.Decode(y, b); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(x, y) {
				t.Fatalf("%v: step %d: two decoders alike, one with src overwritten after each call, differ", k, step)
			}
		}
	}
}

// Bytes that were in dst before stay, whether or not dst has room, and whether or not src is suited.
func (s suite) keepsPrefix(t *testing.T) {
	for _, k := range Kinds() {
		const n = 1200
		src := k.Fill(s.dtype, n, 3)
		e, _ := s.pair(t, n)
		want, wantErr := e.Append(nil, src)
		for _, room := range []int{0, 1, 100, len(src), s.codec.MaxEncodedLen(n) + 64} {
			prefix := []byte("what was there")
			dst := append(make([]byte, 0, len(prefix)+room), prefix...)
			e, _ := s.pair(t, n)
			got, err := e.Append(dst, src)
			if (err == nil) != (wantErr == nil) || !bytes.Equal(got[:len(prefix)], prefix) || !bytes.Equal(got[len(prefix):], want) {
				t.Fatalf("%v: room for %d bytes: Append to a prefix gave other bytes, or lost it (%v)", k, room, err)
			}
			if err != nil && len(got) != len(prefix) {
				t.Fatalf("%v: ErrUnsuited, but dst grew by %d bytes", k, len(got)-len(prefix))
			}
		}
	}
}

// No element of dst keeps its old value.
func (s suite) setsEveryElement(t *testing.T) {
	for _, k := range Kinds() {
		for _, n := range []int{1, 63, 2000} {
			e, _ := s.pair(t, n)
			encoded, err := e.Append(nil, k.Fill(s.dtype, n, 4))
			if err != nil {
				continue
			}
			var out [2][]byte
			for i, fill := range []byte{0x00, 0xff} {
				_, d := s.pair(t, n)
				out[i] = bytes.Repeat([]byte{fill}, n*s.dtype.Size())
				if err := d.Decode(out[i], encoded); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(out[0], out[1]) {
				t.Fatalf("%v: Decode left %s of dst", k, difference(out[0], out[1]))
			}
		}
	}
}

// Slices of the network have any alignment.
func (s suite) unaligned(t *testing.T) {
	const n = 1501
	src := Gaussian.Fill(s.dtype, n, 5)
	e, d := s.pair(t, n)
	want, out := s.check(t, e, d, src)
	for shift := 1; shift < 8 && want != nil; shift++ {
		at := append(make([]byte, shift), src...)[shift:]
		e, d := s.pair(t, n)
		got, err := e.Append(make([]byte, shift, shift+len(src)), at)
		if err != nil || !bytes.Equal(got[shift:], want) {
			t.Fatalf("shifted by %d: other bytes, %v", shift, err)
		}
		back := make([]byte, shift+len(src))[shift:]
		if err := d.Decode(back, got[shift:]); err != nil || !bytes.Equal(back, out) {
			t.Fatalf("shifted by %d: other elements, %v", shift, err)
		}
	}
}

// An encoder that has met unsuited blocks goes on as one that has not.
func (s suite) unsuitedLeavesState(t *testing.T) {
	const n = 2048
	e1, d1 := s.pair(t, n)
	e2, _ := s.pair(t, n)
	for step := range 4 {
		src := Gaussian.Fill(s.dtype, n, uint64(step))
		for _, k := range []Kind{Random, Special} {
			probe, _ := s.pair(t, n)
			if _, err := probe.Append(nil, k.Fill(s.dtype, n, 9)); !errors.Is(err, codecs.ErrUnsuited) {
				continue // suited: it would move the state
			}
			if got, err := e1.Append(nil, k.Fill(s.dtype, n, 9)); !errors.Is(err, codecs.ErrUnsuited) || len(got) != 0 {
				t.Fatalf("%v is unsuited to one encoder but not to another: %v", k, err)
			}
		}
		a, errA := e1.Append(nil, src)
		b, errB := e2.Append(nil, src)
		if (errA == nil) != (errB == nil) || !bytes.Equal(a, b) {
			t.Fatalf("step %d: an unsuited block changed the encodings after it", step)
		}
		if errA == nil {
			if err := d1.Decode(make([]byte, len(src)), a); err != nil {
				t.Fatal(err)
			}
		}
	}
}
