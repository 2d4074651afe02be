// Package arith adds and subtracts values side by side, as error feedback does with whole tensors.
package arith

// Add sets dst[i] to a[i]+b[i], rounded to float32. dst may be a or b; otherwise they must not overlap. It panics if a or b
// is shorter than dst.
func Add(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// Sub sets dst[i] to a[i]-b[i] in the same way.
func Sub(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}
