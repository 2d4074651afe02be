// Package entropy estimates how short bytes of a sample can be coded, from the number of times that each value was
// seen.
package entropy

import "math"

// MaxSample is the maximum of bytes in a sample.
const MaxSample = 4096

// Bits estimates the order-0 entropy of the source of n bytes, 1 to MaxSample, in bits a byte, and counts the byte
// values among them. count[v] is how often the byte v was seen. A small sample looks less random than its source; the
// last term corrects this bias (Miller 1955, Madow).
func Bits(count *[256]uint16, n int) (bits float64, symbols int) {
	sum := float32(0)
	for _, c := range count {
		if c > 0 {
			symbols++
		}
		sum += countLog[c]
	}
	size := float64(n)
	return math.Log2(size) - float64(sum)/size + float64(symbols-1)/(2*math.Ln2*size), symbols
}

// countLog[c] is c log2 c.
var countLog = func() (t [MaxSample + 1]float32) {
	for c := 2; c < len(t); c++ {
		t[c] = float32(float64(c) * math.Log2(float64(c)))
	}
	return t
}()
