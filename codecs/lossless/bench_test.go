package lossless

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/tensor"
)

// An input is the data of one benchmark.
type input struct {
	name  string
	dtype tensor.DType
	data  []byte
}

// inputs are recorded gradients as they are, rounded to bfloat16, and so rounded but kept in float32 (as mixed
// precision does); keys; and bytes that do not compress.
func inputs() []input {
	var all []input
	for _, r := range gradients.All() {
		all = append(all, input{r.Name + "/float32", tensor.Float32, r.Row(0)}, input{r.Name + "/bfloat16", tensor.BFloat16, brain(r.Row(0))})
		if r.Name == "lm" {
			wide := make([]byte, len(r.Row(0)))
			values := make([]float32, r.Cols)
			tensor.ToFloat32(values, brain(r.Row(0)), tensor.BFloat16)
			tensor.FromFloat32(wide, values, tensor.Float32)
			all = append(all, input{"lm/mixed", tensor.Float32, wide})
		}
	}
	const n = 32 << 10
	return append(all,
		input{"normal/float16", tensor.Float16, codectest.Gaussian.Fill(tensor.Float16, 4*n, 1)},
		input{"normal/float64", tensor.Float64, codectest.Gaussian.Fill(tensor.Float64, n, 1)},
		input{"keys/uint64", tensor.Uint64, codectest.Keys.Fill(tensor.Uint64, n, 1)},
		input{"cnn/unknown", tensor.NoDType, all[0].data},
		input{"random/float32", tensor.Float32, codectest.Random.Fill(tensor.Float32, 2*n, 1)})
}

func brain(f []byte) []byte {
	b := make([]byte, len(f)/2)
	tensor.FromFloat32(b, tensor.View(f), tensor.BFloat16)
	return b
}

func BenchmarkEncode(b *testing.B) {
	each(b, func(b *testing.B, in input, e codecs.Encoder, _ codecs.Decoder) {
		dst := make([]byte, 0, len(in.data)+1024)
		var err error
		for b.Loop() {
			if dst, err = e.Append(dst[:0], in.data); err != nil && !errors.Is(err, codecs.ErrUnsuited) {
				b.Fatal(err)
			}
		}
		if err == nil {
			b.ReportMetric(float64(len(in.data))/float64(len(dst)), "ratio")
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	each(b, func(b *testing.B, in input, e codecs.Encoder, d codecs.Decoder) {
		src, err := e.Append(nil, in.data)
		if err != nil {
			b.Skip(err)
		}
		dst := make([]byte, len(in.data))
		for b.Loop() {
			if err := d.Decode(dst, src); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCopy is what the others are to be divided by: the same bytes, copied.
func BenchmarkCopy(b *testing.B) {
	src, dst := make([]byte, chunkBytes), make([]byte, chunkBytes)
	b.SetBytes(chunkBytes)
	for b.Loop() {
		copy(dst, src)
	}
}

func each(b *testing.B, f func(*testing.B, input, codecs.Encoder, codecs.Decoder)) {
	for _, l := range []Level{Balanced, Fast} {
		c := mustNew(b, Config{l})
		for _, in := range inputs() {
			b.Run(string(l)+"/"+in.name, func(b *testing.B) {
				n := len(in.data) / in.dtype.Size()
				e, err := c.NewEncoder(in.dtype, n)
				if err != nil {
					b.Fatal(err)
				}
				d, err := c.NewDecoder(in.dtype, n)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(in.data)))
				b.ReportAllocs()
				f(b, in, e, d)
			})
		}
	}
}
