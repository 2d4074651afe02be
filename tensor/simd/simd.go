// Package simd says which vector instructions of the processor the assembly kernels may use. A kernel is a loop in
// assembly beside a function in Go that gives the same bits. The kernels lie in the packages that call them
// (kernels_amd64.s), and codecs/internal/asm/gen writes them. A build with the tag purego has no kernels, like a build
// for another architecture.
package simd

import "sync/atomic"

// A Tier is a set of instructions; each tier includes the tiers before it.
type Tier uint32

const (
	Plain  Tier = iota // Go only
	AVX2               // x86-64-v3
	AVX512             // F, BW, DQ and VL
	VBMI               // AVX512 with VBMI and VBMI2, which permute and compress bytes
)

func (t Tier) String() string { return [...]string{"plain", "avx2", "avx512", "vbmi"}[t] }

// Best returns the highest tier of this processor. GODEBUG=cpu.avx512f=off and cpu.avx2=off lower it, as they do for
// golang.org/x/sys/cpu.
func Best() Tier { return best }

var best = detect()

// limit is one more than the tier that Limit has set; 0: none.
var limit atomic.Uint32

// Use returns the tier to use.
func Use() Tier {
	if l := limit.Load(); l != 0 {
		return Tier(l - 1)
	}
	return best
}

// Limit makes Use return the lower of t and Best until restore is called, in the whole process. It is for tests.
func Limit(t Tier) (restore func()) {
	old := limit.Swap(uint32(min(t, best)) + 1)
	return func() { limit.Store(old) }
}
