package fastsgd

import (
	"flag"
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

var large = flag.Bool("large", false, "BenchmarkLinear goes on to 100 million values, which take 2 GiB of memory")

// BenchmarkLinear shows that time is O(D) (section 3.4): nanoseconds a value stay as they are while D grows. The
// threshold is such that all values are sent.
func BenchmarkLinear(b *testing.B) {
	sizes := []int{1e5, 1e6, 1e7}
	if *large {
		sizes = append(sizes, 1e8)
	}
	for _, n := range sizes {
		codec := mustNew(b, Config{Tau: 300, Block: n})
		b.Run(fmt.Sprintf("D=%.0e", float64(n)), func(b *testing.B) {
			e, err := codec.NewEncoder(tensor.Float32, n)
			if err != nil {
				b.Fatal(err)
			}
			d, err := codec.NewDecoder(tensor.Float32, n)
			if err != nil {
				b.Fatal(err)
			}
			src := codectest.Heavy.Fill(tensor.Float32, min(n, 1e6), 1)
			for len(src) < 4*n {
				src = append(src, src[:min(len(src), 4*n-len(src))]...)
			}
			var out []byte
			report := func(b *testing.B) {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/value")
				b.ReportMetric(8*float64(len(out))/float64(n), "bits/value")
			}
			b.Run("encode", func(b *testing.B) {
				b.SetBytes(int64(4 * n))
				b.ReportAllocs()
				for b.Loop() {
					if out, err = e.Append(out[:0], src); err != nil {
						b.Fatal(err)
					}
				}
				report(b)
			})
			b.Run("decode", func(b *testing.B) {
				if out, err = e.Append(out[:0], src); err != nil {
					b.Fatal(err)
				}
				dst := make([]byte, 4*n)
				b.SetBytes(int64(4 * n))
				b.ReportAllocs()
				for b.Loop() {
					if err := d.Decode(dst, out); err != nil {
						b.Fatal(err)
					}
				}
				report(b)
			})
		})
	}
}
