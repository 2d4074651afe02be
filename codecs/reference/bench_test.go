package reference_test

import (
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/tensor"
)

// A pull is the weights at two successive steps, repeated to the size of a benchmark.
type pull struct {
	name          string
	before, after []byte
}

func pulls(d tensor.DType, size int) []pull {
	n := newNetwork()
	for range 20 {
		n.step(0.05, 0)
	}
	weights := func() []byte {
		b := make([]byte, len(n.w)*d.Size())
		tensor.FromFloat32(b, n.w, d)
		for len(b) < size {
			b = append(b, b...)
		}
		return b[:size:size]
	}
	before := weights()
	n.step(0.05, 0)
	return []pull{{"trained", before, weights()}, {"same", before, before}}
}

// Benchmark measures a pull that is coded against the last one, in the same direction, in blocks as the codecs want
// them: GB/s of elements, x-copy against Go's copy of as many bytes in the same run, ratio.
func Benchmark(b *testing.B) {
	for _, text := range []string{"lossless", "3lc(s=1.75)", "int8"} {
		for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
			c := mustNew(b, text)
			size := c.Block(1 << 20)
			for _, p := range pulls(d, size) {
				b.Run(fmt.Sprintf("%s/%v/%s", text, d, p.name), func(b *testing.B) {
					b.Run("encode", func(b *testing.B) { benchEncode(b, c, d, p) })
					b.Run("decode", func(b *testing.B) { benchDecode(b, c, d, p) })
				})
			}
		}
	}
}

// benchEncode codes against a copy that stays, and keeps the result in another.
func benchEncode(b *testing.B, c codecs.Codec, d tensor.DType, p pull) {
	size := len(p.before)
	from, to := reference.NewCopy(size, 0), reference.NewCopy(size, 0)
	from.Set(p.before)
	enc, err := reference.NewEncoder(c, d, from, to)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, size+1024)
	codectest.AgainstCopy(b, size, func() {
		if dst, err = enc.Append(dst[:0], p.after); err != nil {
			b.Fatal(err)
		}
	})
	b.ReportMetric(float64(size)/float64(len(dst)), "ratio")
}

func benchDecode(b *testing.B, c codecs.Codec, d tensor.DType, p pull) {
	size := len(p.before)
	from, to := reference.NewCopy(size, 0), reference.NewCopy(size, 0)
	from.Set(p.before)
	enc, err := reference.NewEncoder(c, d, from, nil)
	if err != nil {
		b.Fatal(err)
	}
	src, err := enc.Append(nil, p.after)
	if err != nil {
		b.Fatal(err)
	}
	dec, err := reference.NewDecoder(c, d, from, to)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, size)
	codectest.AgainstCopy(b, size, func() {
		if err := dec.Decode(dst, src); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkSet is a copy with a hash.
func BenchmarkSet(b *testing.B) {
	for _, size := range []int{128 << 10, 64 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			c, src := reference.NewCopy(size, 0), make([]byte, size)
			codectest.AgainstCopy(b, size, func() { c.Set(src) })
		})
	}
}
