package gspar

import (
	"math"

	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
)

const (
	binShift = 19 // the upper 12 of a magnitude's 31 bits: the exponent and four more
	binCount = 1 << (31 - binShift)
)

// A histogram has the sums of magnitudes that share their upper 12 bits, in order. Zeros are in none.
type histogram struct {
	bins    [binCount]bin
	squares float64 // Σ g_i²
}

type bin struct {
	count        int
	largest      float32 // the largest
	sum, squares float64 // of the bin
	// Of the bins below, once all are filled.
	restSum, restSquares float64
}

func histogramOf(g []float32) *histogram {
	h := new(histogram)
	for _, v := range g {
		m := magnitude.Of(v)
		if m == 0 {
			continue
		}
		a := math.Float32frombits(m)
		b := &h.bins[m>>binShift&(binCount-1)]
		b.count++
		b.largest = max(b.largest, a)
		b.sum += float64(a)
		b.squares += float64(a) * float64(a)
	}
	sum, squares := 0.0, 0.0
	for i := range h.bins {
		b := &h.bins[i]
		b.restSum, b.restSquares = sum, squares
		sum, squares = sum+b.sum, squares+b.squares
	}
	h.squares = squares
	return h
}
