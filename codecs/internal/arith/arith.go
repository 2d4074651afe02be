// Package arith adds and subtracts values side by side, as error feedback does with whole tensors.
package arith

// Add sets dst[i] to a[i]+b[i], rounded to float32. dst may be a or b; otherwise they must not overlap. It panics if a
// or b is shorter than dst.
func Add(dst, a, b []float32) {
	a, b = a[:len(dst):len(a)], b[:len(dst):len(b)]
	n := addTiles(dst, a, b)
	addPlain(dst[n:], a[n:], b[n:])
}

// Sub sets dst[i] to a[i]-b[i] in the same way.
func Sub(dst, a, b []float32) {
	a, b = a[:len(dst):len(a)], b[:len(dst):len(b)]
	n := subTiles(dst, a, b)
	subPlain(dst[n:], a[n:], b[n:])
}

// addPlain is Add in Go.
func addPlain(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// subPlain is Sub in Go.
func subPlain(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}
