package proxy

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// buffers recycles byte slices by sizes, four to each power of two, so that a block costs no allocation in steady state.
type buffers struct {
	classes [4 * 32]sync.Pool
	lent    atomic.Int64 // bytes that get has given and put has not taken back
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

// footprint returns the bytes of memory that a slice of n takes.
func footprint(n int) int {
	if n == 0 {
		return 0
	}
	_, size := class(n)
	return size
}

// get returns a slice of length n whose content is anything.
func (p *buffers) get(n int) []byte {
	if n == 0 {
		return nil
	}
	index, size := class(n)
	p.lent.Add(int64(size))
	if b, ok := p.classes[index].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, size)
}

// put takes back a slice of get, or one that was cut from its beginning.
func (p *buffers) put(b []byte) {
	if cap(b) == 0 {
		return
	}
	b = b[:cap(b)]
	index, size := class(len(b))
	if size != len(b) {
		panic("proxy: a buffer is put back that was not lent")
	}
	p.lent.Add(-int64(size))
	p.classes[index].Put(&b)
}
