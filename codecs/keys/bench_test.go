package keys

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/lossless"
	"github.com/gradproxy/gradproxy/tensor"
)

// Benchmark measures the element codecs, and package lossless beside them, on uint32 keys: one integer in so many,
// drawn at random, and gaps of every magnitude. It reports bits a key, how many times the bound that is, and speed
// against a copy.
func Benchmark(b *testing.B) {
	general, err := lossless.New(lossless.Config{})
	if err != nil {
		b.Fatal(err)
	}
	all := []codecs.Codec{general}
	for _, c := range codings() {
		all = append(all, New(c))
	}
	const n = 1 << 16 // a block
	for _, every := range []float64{1.1, 2, 2.6, 3, 10, 56, 125, 1000, 10000} {
		size := uint64(n * every)
		keys := uniform(1, 1/every, size+size/10)[:n]
		b.Run(fmt.Sprintf("1 in %v", every), func(b *testing.B) {
			for _, c := range all {
				b.Run(c.String(), func(b *testing.B) { bench(b, c, keys, bernoulliBits(n, size)) })
			}
		})
	}
	b.Run("skewed", func(b *testing.B) {
		for _, c := range all {
			b.Run(c.String(), func(b *testing.B) { bench(b, c, skewed(1, n, 16), 0) })
		}
	})
}

func bench(b *testing.B, c codecs.Codec, keys []uint64, bound float64) {
	var src []byte
	for _, k := range keys {
		src = binary.LittleEndian.AppendUint32(src, uint32(k))
	}
	e, err := c.NewEncoder(tensor.Uint32, len(keys))
	if err != nil {
		b.Fatal(err)
	}
	d, err := c.NewDecoder(tensor.Uint32, len(keys))
	if err != nil {
		b.Fatal(err)
	}
	out := make([]byte, 0, c.MaxEncodedLen(len(keys)))
	encode := func() {
		if out, err = e.Append(out[:0], src); err != nil {
			b.Fatal(err)
		}
	}
	report := func(b *testing.B) {
		bits := 8 * float64(len(out)) / float64(len(keys))
		b.ReportMetric(bits, "bits/key")
		if bound > 0 {
			b.ReportMetric(bits/bound, "x-bound")
		}
	}
	b.Run("encode", func(b *testing.B) { codectest.AgainstCopy(b, len(src), encode); report(b) })
	encode()
	dst := make([]byte, len(src))
	b.Run("decode", func(b *testing.B) {
		codectest.AgainstCopy(b, len(src), func() {
			if err := d.Decode(dst, out); err != nil {
				b.Fatal(err)
			}
		})
		report(b)
	})
}
