// Package scratch recycles the float32 values of blocks that are being coded: coders are many, one for each block of
// each tensor, but few run at a time.
package scratch

import "sync"

var pool sync.Pool // of *[]float32 of any capacity

// Take returns n values that are anything. The caller owns them until it gives them to Put.
func Take(n int) *[]float32 {
	if v, ok := pool.Get().(*[]float32); ok && cap(*v) >= n {
		*v = (*v)[:n]
		return v
	}
	v := make([]float32, n)
	return &v
}

// Put takes back a slice of Take.
func Put(v *[]float32) { pool.Put(v) }
