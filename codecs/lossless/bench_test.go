package lossless

import (
	"bytes"
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

// inputs are recorded vectors of gradients as they are, rounded to bfloat16, and so rounded but kept in float32 (as
// mixed precision does); keys; and bytes that do not compress.
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

// BenchmarkCopy copies the same bytes. Divide the figures of the others by its.
func BenchmarkCopy(b *testing.B) {
	src, dst := make([]byte, chunkBytes), make([]byte, chunkBytes)
	b.SetBytes(chunkBytes)
	for b.Loop() {
		copy(dst, src)
	}
}

// BenchmarkAgainstCopy codes 256 MiB (with -short 16 MiB) of a recorded dense gradient block by block, and reports how
// many times as fast as a copy that is.
func BenchmarkAgainstCopy(b *testing.B) {
	size := 256 << 20
	if testing.Short() {
		size = 16 << 20
	}
	for _, in := range inputs()[:2] {
		data := bytes.Repeat(in.data, size/len(in.data)+1)[:size]
		for _, l := range []Level{Balanced, Fast} {
			c := mustNew(b, Config{l})
			block := c.Block(size)
			e, err1 := c.NewEncoder(in.dtype, block/in.dtype.Size())
			d, err2 := c.NewDecoder(in.dtype, block/in.dtype.Size())
			if err := errors.Join(err1, err2); err != nil {
				b.Fatal(err)
			}
			back, encoded := make([]byte, size), make([][]byte, size/block)
			encode := func() {
				for i := range encoded {
					var err error
					if encoded[i], err = e.Append(encoded[i][:0], data[i*block:][:block]); err != nil {
						b.Fatal(err)
					}
				}
			}
			decode := func() {
				for i := range encoded {
					if err := d.Decode(back[i*block:][:block], encoded[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
			for i := range encoded {
				encoded[i] = make([]byte, 0, block+1024)
			}
			encode()
			b.Run(string(l)+"/"+in.name+"/encode", func(b *testing.B) {
				codectest.AgainstCopy(b, size, encode)
				total := 0
				for _, e := range encoded {
					total += len(e)
				}
				b.ReportMetric(float64(size)/float64(total), "ratio")
			})
			b.Run(string(l)+"/"+in.name+"/decode", func(b *testing.B) { codectest.AgainstCopy(b, size, decode) })
		}
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
