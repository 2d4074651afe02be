package tunnel

import (
	"sync"
	"sync/atomic"
)

// buffers is an Endpoint's memory: pools of chunks of nine sizes, and the budget that they count against.
type buffers struct {
	limit   int64        // Config.Memory
	peers   atomic.Int64 // that share it
	used    atomic.Int64 // bytes in chunks
	granted atomic.Int64 // bytes of credit beyond the one that streams begin with
	pools   [9]sync.Pool
	relieve func() // called while over(95): has streams given up whose readers have stopped
}

// An account is the part of the memory that one peer's sessions use. Memory that is short is refused only to peers that
// use more than their share: no peer takes it from another.
type account struct {
	*buffers
	own atomic.Int64 // bytes in chunks
}

// class returns the index of the smallest pool whose chunks hold n bytes (1, 2, 4, … 256 KiB), and their size.
func class(n int) (i, size int) {
	for size = 1 << 10; size < n; size <<= 1 {
		i++
	}
	return i, size
}

// get returns an empty chunk for at least n bytes, n <= maxBody.
func (a *account) get(n int) *chunk {
	i, size := class(n)
	a.count(int64(size))
	if c, ok := a.pools[i].Get().(*chunk); ok {
		return c
	}
	return &chunk{buf: make([]byte, headerLen+size)}
}

func (a *account) count(n int64) {
	a.used.Add(n)
	a.own.Add(n)
}

// put takes back a chunk that is in no list. The caller holds the session's lock if others may use it.
func (a *account) put(c *chunk) {
	if c.users > 0 {
		c.freed = true
		return
	}
	i, size := class(len(c.buf) - headerLen)
	a.count(-int64(size))
	*c = chunk{buf: c.buf}
	a.pools[i].Put(c)
}

// forget is put for a chunk that somebody may still read, which no lock tells: it is not used again.
func (a *account) forget(c *chunk) { a.count(-int64(len(c.buf) - headerLen)) }

// unuse ends one use of c outside the lock.
func (a *account) unuse(c *chunk) {
	if c.users--; c.users == 0 && c.freed {
		a.put(c)
	}
}

// over reports whether at least that share of the budget is used.
func (b *buffers) over(percent int64) bool { return b.used.Load()*100 >= b.limit*percent }

// over reports whether at least that share of the budget is used, and the peer uses as much of its part of it. If the
// first is so, then so is the second for one peer at least.
func (a *account) over(percent int64) bool {
	return a.buffers.over(percent) && a.own.Load()*100*max(1, a.peers.Load()) >= a.limit*percent
}

// grant reserves n bytes of additional credit if the budget allows it: all promised credit stays under 80 %,
// and nothing more is promised while 80 % are used.
func (b *buffers) grant(n int64) bool {
	if b.over(80) {
		return false
	}
	if (b.granted.Add(n))*100 > b.limit*80 {
		b.granted.Add(-n)
		return false
	}
	return true
}
