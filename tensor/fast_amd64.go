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

// cutTiles does what plainCut does, for at least sumLanes values; false: there is no kernel for this processor.
func (s *sums) cutTiles(x []float32, y []byte) bool {
	switch {
	case hasAVX512:
		sumsCutAVX512(&x[0], &y[0], len(x), (*[5]float32)(s))
	case hasAVX2:
		sumsCutAVX2(&x[0], &y[0], len(x), (*[5]float32)(s))
	default:
		return false
	}
	return true
}

// cutTiles does what cut does for the first n values.
func cutTiles(dst []byte, src []float32) (n int) {
	switch n = tiles(len(src)); {
	case n == 0:
	case hasAVX512:
		cutAVX512(&dst[0], &src[0], n)
	default:
		cutAVX2(&dst[0], &src[0], n)
	}
	return n
}

// tiles returns how many of n values the kernels between float32 and 16 bits take.
func tiles(n int) int {
	const tile = 32
	if !hasAVX2 {
		return 0
	}
	return n &^ (tile - 1)
}

// Each of these does what the function of its name does for the first n values.

func widenBrainTiles(dst []float32, src []byte) (n int) {
	switch n = tiles(len(dst)); {
	case n == 0:
	case hasAVX512:
		widenBrainAVX512(&dst[0], &src[0], n)
	default:
		widenBrainAVX2(&dst[0], &src[0], n)
	}
	return n
}

func widenHalfTiles(dst []float32, src []byte) (n int) {
	switch n = tiles(len(dst)); {
	case n == 0:
	case hasAVX512:
		widenHalfAVX512(&dst[0], &src[0], n)
	default:
		widenHalfAVX2(&dst[0], &src[0], n)
	}
	return n
}

func narrowBrainTiles(dst []byte, src []float32, most uint32) (n int) {
	switch n = tiles(len(src)); {
	case n == 0:
	case hasAVX512:
		narrowBrainAVX512(&dst[0], &src[0], n, most)
	default:
		narrowBrainAVX2(&dst[0], &src[0], n, most)
	}
	return n
}

func narrowHalfTiles(dst []byte, src []float32, most uint32) (n int) {
	switch n = tiles(len(src)); {
	case n == 0:
	case hasAVX512:
		narrowHalfAVX512(&dst[0], &src[0], n, most)
	default:
		narrowHalfAVX2(&dst[0], &src[0], n, most)
	}
	return n
}

func roundBrainTiles(v []float32) (n int) {
	switch n = tiles(len(v)); {
	case n == 0:
	case hasAVX512:
		roundBrainAVX512(&v[0], n)
	default:
		roundBrainAVX2(&v[0], n)
	}
	return n
}

func roundHalfTiles(v []float32) (n int) {
	switch n = tiles(len(v)); {
	case n == 0:
	case hasAVX512:
		roundHalfAVX512(&v[0], n)
	default:
		roundHalfAVX2(&v[0], n)
	}
	return n
}
