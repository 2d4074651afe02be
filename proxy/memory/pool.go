package memory

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A Pool recycles byte slices by sizes, four to each power of two, so that a block costs no allocation in steady state.
// The zero Pool is empty.
type Pool struct {
	classes [4 * 32]sync.Pool // of *byte, the first of a slice: the class tells its length, and a whole slice would be allocated to be put
	inUse   atomic.Int64      // bytes that Get has given and Put has not taken back
}

// class returns the smallest size of slices that holds n bytes, and its index.
func class(n int) (index, size int) {
	if n <= 8 {
		return 0, 8
	}
	shift := bits.Len(uint(n-1)) - 3 // a quarter of the power of two below n
	quarters := (n-1)>>shift + 1     // 5 to 8
	return 4*shift + quarters - 4, quarters << shift
}

// Footprint returns the bytes of memory that a slice of n takes.
func Footprint(n int) int {
	if n == 0 {
		return 0
	}
	_, size := class(n)
	return size
}

// Get returns a slice of length n with any content.
func (p *Pool) Get(n int) []byte {
	if n == 0 {
		return nil
	}
	index, size := class(n)
	p.inUse.Add(int64(size))
	if first, ok := p.classes[index].Get().(*byte); ok {
		return unsafe.Slice(first, size)[:n]
	}
	return make([]byte, n, size)
}

// Put takes back a slice of Get, or one that was cut from its beginning. The caller must not use it any more.
func (p *Pool) Put(b []byte) {
	if cap(b) == 0 {
		return
	}
	index, size := class(cap(b))
	if size != cap(b) {
		panic("proxy: a buffer is put back that does not come from the pool")
	}
	p.inUse.Add(-int64(size))
	p.classes[index].Put(unsafe.SliceData(b))
}

// InUse returns the bytes that Get has given and Put has not taken back. Tests of the packages that take buffers
// compare it with the budgets: a buffer that is lost, or that no budget pays for, shows in no other figure.
func (p *Pool) InUse() int64 { return p.inUse.Load() }
