package countsketch

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs/codectest/cputime"
)

// Coordinates a second into and out of a table that a core's second cache holds (32,768 columns), and the paper's
// largest: the median of passes over 2^20 of them, of processor time.
func Benchmark(b *testing.B) {
	const n = 1 << 20
	for _, c := range []Config{{5, 32768, 1}, {5, 1 << 20, 1}, {15, 180000, 1}} {
		h, err := NewHash(c, n)
		if err != nil {
			b.Fatal(err)
		}
		s, x := New(h), make([]float32, n)
		for i := range x {
			x[i] = float32(i%1000) - 499.5
		}
		run := func(name string, op func()) {
			b.Run(fmt.Sprintf("%dx%d/%s", c.Rows, c.Columns, name), func(b *testing.B) {
				b.SetBytes(4 * n)
				b.ReportAllocs()
				took := make([]time.Duration, 0, 1<<14)
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for b.Loop() {
					begin := cputime.Now()
					op()
					if len(took) < cap(took) {
						took = append(took, cputime.Now()-begin)
					}
				}
				slices.Sort(took)
				b.ReportMetric(n/took[len(took)/2].Seconds()/1e6, "M/s")
			})
		}
		run("insert", func() { s.Insert(0, x) })
		run("query", func() { s.Query(x, 0) })
		s.Reset()
	}
}
