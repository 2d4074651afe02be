package proxy

import (
	"math/bits"
	"sync"

	"golang.org/x/sync/semaphore"
)

// buffers recycles byte slices by powers of two, so that a block costs no allocation in steady state.
type buffers struct{ classes [32]sync.Pool }

// get returns a slice of length n whose content is anything.
func (p *buffers) get(n int) []byte {
	if n == 0 {
		return nil
	}
	class := bits.Len(uint(n - 1))
	if b, ok := p.classes[class].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, 1<<class)
}

// put takes back a slice of get, or one that was cut from its beginning. Others are left to the garbage collector.
func (p *buffers) put(b []byte) {
	if c := cap(b); c > 0 && c&(c-1) == 0 {
		b = b[:c]
		p.classes[bits.Len(uint(c-1))].Put(&b)
	}
}

// A budget bounds the bytes of blocks that all connections together hold. Who gets nothing goes on with less: a sender
// lets the block travel verbatim, a receiver handles one block at a time. So nobody waits for anybody's memory.
type budget struct {
	left *semaphore.Weighted
}

func newBudget(bytes int64) budget { return budget{semaphore.NewWeighted(bytes)} }

func (b budget) take(n int) bool { return b.left.TryAcquire(int64(n)) }
func (b budget) give(n int)      { b.left.Release(int64(n)) }
