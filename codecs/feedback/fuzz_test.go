package feedback_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

// fuzzedTexts are codecs of every kind: with a pass of their own for feedback and without, dense and sparse,
// deterministic and random.
var fuzzedTexts = []string{
	"3lc(s=1.75)", "3lc(s=1.5,block=10)", "int4(block=8)", "int8", "int255", "fp16", "bf16", "onebit", "stochastic3", "qsgd", "logquant",
	"topk(k=0.1)", "threshold(t=1)", "dgc(k=0.1)", "unisp(kappa=0.3)", "gspar(kappa=0.3)", "sketchedsgd(k=0.1)", "skcompress(q=4,r=2)", "skcompress(mode=joint)",
}

// FuzzFeedback: for all values of a tensor's steps, and all codecs of each step, the residual of a step is the sum less
// the delivered value, bit for bit; the sent values add up to the delivered values and the residual; and an unsuited
// step leaves the residual as it was.
func FuzzFeedback(f *testing.F) {
	const steps = 4
	for i := range fuzzedTexts {
		for _, k := range codectest.Kinds() {
			for kind, d := range floats {
				by := []byte{byte(i), byte(i), byte(i + int(k)), byte(i)}
				f.Add(k.Fill(d, steps*20, uint64(i)), by, byte(kind))
			}
		}
	}
	list := make([]codecs.Codec, len(fuzzedTexts))
	for i, text := range fuzzedTexts {
		list[i] = mustNew(f, text)
	}
	f.Fuzz(func(t *testing.T, src, by []byte, kind byte) {
		if len(by) == 0 {
			return
		}
		by = by[:min(len(by), 8)]
		d := floats[int(kind)%len(floats)]
		size := len(src) / len(by) / d.Size() * d.Size()
		s := newFuzzedTensor(t, d, size/d.Size())
		for i, which := range by {
			s.step(list[int(which)%len(list)], src[i*size:(i+1)*size])
		}
		s.check()
	})
}

// A fuzzedTensor is a stream with another codec at each step; each codec has an encoder and a decoder for all of its
// steps.
type fuzzedTensor struct {
	*stream
	encoders map[string]codecs.Encoder
	decoders map[string]codecs.Decoder
}

func newFuzzedTensor(t *testing.T, d tensor.DType, n int) *fuzzedTensor {
	return &fuzzedTensor{newStream(t, d, n), map[string]codecs.Encoder{}, map[string]codecs.Decoder{}}
}

func (f *fuzzedTensor) coders(c codecs.Codec) (codecs.Encoder, codecs.Decoder) {
	f.t.Helper()
	name, n := c.String(), len(f.residual)
	if f.encoders[name] == nil {
		e, err1 := feedback.NewEncoder(c, f.dtype, f.residual)
		d, err2 := c.NewDecoder(f.dtype, n)
		if err := errors.Join(err1, err2); err != nil {
			f.t.Fatal(err)
		}
		f.encoders[name], f.decoders[name] = e, d
	}
	return f.encoders[name], f.decoders[name]
}

// step sends a value of the tensor by c, and counts it if it is suited.
func (f *fuzzedTensor) step(c codecs.Codec, src []byte) {
	f.t.Helper()
	e, d := f.coders(c)
	before := slices.Clone(f.residual)
	encoded, err := e.Append([]byte{7}, src)
	if err != nil {
		if !errors.Is(err, codecs.ErrUnsuited) || len(encoded) != 1 || !slices.EqualFunc(before, f.residual, sameBits) {
			f.t.Fatalf("%v: %v, after %d bytes; the residual %v is %v", c, err, len(encoded), before, f.residual)
		}
		return
	}
	delivered := make([]byte, len(src))
	if err := d.Decode(delivered, encoded[1:]); err != nil {
		f.t.Fatalf("%v: %x: %v", c, encoded[1:], err)
	}
	x, y := make([]float32, len(before)), make([]float32, len(before))
	tensor.ToFloat32(x, src, f.dtype)
	tensor.ToFloat32(y, delivered, f.dtype)
	for i, left := range f.residual {
		sum := x[i] + before[i]
		if !sameBits(left, sum-y[i]) || math.IsNaN(float64(left)) || math.IsInf(float64(left), 0) {
			f.t.Fatalf("%v: residual %d is %v: the sum of %v and %v is %v, %v was delivered", c, i, left, x[i], before[i], sum, y[i])
		}
	}
	f.add(f.in, src)
	f.add(f.out, delivered)
	f.steps++
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
