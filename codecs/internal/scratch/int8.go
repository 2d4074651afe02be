package scratch

import "sync"

var int8s sync.Pool // of *[]int8 of any capacity

// TakeInt8 is Take for quantized values.
func TakeInt8(n int) *[]int8 {
	if v, ok := int8s.Get().(*[]int8); ok && cap(*v) >= n {
		*v = (*v)[:n]
		return v
	}
	v := make([]int8, n)
	return &v
}

// PutInt8 takes back a slice of TakeInt8.
func PutInt8(v *[]int8) { int8s.Put(v) }
