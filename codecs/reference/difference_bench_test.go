package reference

import (
	"crypto/subtle"
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// BenchmarkPass measures the work on a block beside the codec's, in a core's cache and, without -short, in memory.
func BenchmarkPass(b *testing.B) {
	for _, size := range []int{128 << 10, 64 << 20} {
		if size > 1<<20 && testing.Short() {
			continue
		}
		// The buffers begin at different places of their pages, so that they do not compete for lines of a cache.
		x, r, dst := make([]byte, size+1344)[1344:], make([]byte, size+2688)[2688:], make([]byte, size)
		copy(x, codectest.Gaussian.Fill(tensor.Float32, 64<<10, 1))
		copy(r, x[4:])
		pass := func(name string, f func()) {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, name), func(b *testing.B) {
				b.SetBytes(int64(size))
				codectest.AgainstCopy(b, size, f)
			})
		}
		for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float64} {
			l := laneOf(d)
			pass("differ/"+d.String(), func() { l.differ(dst, x, r) })
			pass("restore/"+d.String(), func() { l.restore(dst, x, r) })
		}
		pass("xor", func() { subtle.XORBytes(dst, x, r) })
		pass("subtract", func() { subtract(tensor.View(dst), x, r, tensor.Float32) })
		pass("add", func() { add(dst, x, tensor.View(r), tensor.Float32) })
		s, l := new(sample), laneOf(tensor.Float32)
		pass("choose", func() { s.choose(l, x, r, true) })
	}
}
