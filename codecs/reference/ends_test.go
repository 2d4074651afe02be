package reference_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/tensor"
)

var floats = []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16}

func mustNew(t testing.TB, text string) codecs.Codec {
	t.Helper()
	c, err := all.New(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Ends are the two ends of one block in one direction.
type ends struct {
	codec    codecs.Codec
	dtype    tensor.DType
	near     *reference.Copy // at the encoder's end
	far      *reference.Copy
	enc      codecs.Encoder
	dec      codecs.Decoder
	nearKept *reference.Copy // nil: nothing is kept
	farKept  *reference.Copy
}

// sameDirection are ends that code each block against the one before.
func sameDirection(t testing.TB, c codecs.Codec, d tensor.DType, n int) *ends {
	near, far := reference.NewCopy(n*d.Size(), 0), reference.NewCopy(n*d.Size(), 0)
	return between(t, c, d, near, far, near, far)
}

func between(t testing.TB, c codecs.Codec, d tensor.DType, near, far, nearKept, farKept *reference.Copy) *ends {
	t.Helper()
	e := &ends{codec: c, dtype: d, near: near, far: far, nearKept: nearKept, farKept: farKept}
	var err1, err2 error
	e.enc, err1 = reference.NewEncoder(c, d, near, nearKept)
	e.dec, err2 = reference.NewDecoder(c, d, far, farKept)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return e
}

// send sends x as a proxy does, exactly if it is unsuited, and returns the delivered elements and their encoding, nil
// if there is none.
func (e *ends) send(t testing.TB, x []byte) (delivered, encoded []byte) {
	t.Helper()
	before := e.state()
	encoded, err := e.enc.Append(nil, x)
	switch {
	case errors.Is(err, codecs.ErrUnsuited):
		if len(encoded) != 0 || !bytes.Equal(before, e.state()) {
			t.Fatal("an unsuited block left something behind")
		}
		if e.nearKept != nil {
			e.nearKept.Set(x)
			e.farKept.Set(x)
		}
		return x, nil
	case err != nil:
		t.Fatal(err)
	}
	delivered = bytes.Repeat([]byte{0xa5}, len(x))
	if err := e.dec.Decode(delivered, encoded); err != nil {
		t.Fatal(err)
	}
	e.agree(t, delivered)
	return delivered, encoded
}

// state returns the value that the encoder's end holds.
func (e *ends) state() []byte {
	if e.nearKept == nil {
		return nil
	}
	return e.nearKept.AppendTo([]byte{byte(e.nearKept.Version())})
}

// agree fails unless both ends keep the delivered value.
func (e *ends) agree(t testing.TB, delivered []byte) {
	t.Helper()
	if e.nearKept == nil {
		return
	}
	a, b := e.nearKept.AppendTo(nil), e.farKept.AppendTo(nil)
	if !bytes.Equal(a, b) || !bytes.Equal(b, delivered) || e.nearKept.Version() != e.farKept.Version() {
		t.Fatalf("after version %d the ends hold other values (%d there), or not what was delivered", e.nearKept.Version(), e.farKept.Version())
	}
}

func putFloat64(b []byte, i int, x float64) {
	binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(x))
}

func float64At(b []byte, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
}
