//go:build !purego

package tensor

import "golang.org/x/sys/cpu"

var (
	hasAVX2   = cpu.X86.HasAVX2
	hasAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL
)

// tiles does what plain does, for at least sumLanes values; false: there is no kernel for this processor.
func (s *sums) tiles(x, y []float32) bool {
	switch {
	case hasAVX512:
		sumsAVX512(&x[0], &y[0], len(x), (*[5]float32)(s))
	case hasAVX2:
		sumsAVX2(&x[0], &y[0], len(x), (*[5]float32)(s))
	default:
		return false
	}
	return true
}
