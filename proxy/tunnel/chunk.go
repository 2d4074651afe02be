package tunnel

import (
	"sync"
	"sync/atomic"
)

// A chunk holds bytes of one stream, from Write until they are acknowledged, or from a carrier until they
// are read. It belongs to one list of its stream, and is guarded by the session's lock, but for the bytes that
// a user has reserved by users.
type chunk struct {
	next *chunk
	off  uint64 // stream offset of the first byte
	from int    // bytes of it that were read already (receiving)
	n    int    // bytes that it holds
	fin  bool   // the direction ends after them

	state   chunkState
	left    bool     // has left once: header and bytes are final
	carrier *carrier // on which it left last

	users int  // goroutines that use buf outside the lock
	freed bool // to be put back when the last user is gone

	buf []byte // headerLen bytes of room, then the bytes
}

type chunkState uint8

const (
	chunkQueued  chunkState = iota // waits for a carrier
	chunkFilling                   // Write copies into it
	chunkSent                      // left on a carrier, not acknowledged
)

// end returns the position after the chunk, where the end of the direction counts as one position.
func (c *chunk) end() uint64 {
	e := c.off + uint64(c.n)
	if c.fin {
		e++
	}
	return e
}

func (c *chunk) room() int      { return len(c.buf) - headerLen - c.n }
func (c *chunk) bytes() []byte  { return c.buf[headerLen+c.from : headerLen+c.n] }
func (c *chunk) record() []byte { return c.buf[:headerLen+c.n] }

// take copies bytes of p behind those that the chunk holds.
func (c *chunk) take(p []byte) int {
	n := copy(c.buf[headerLen+c.n:], p)
	c.n += n
	return n
}

// seal writes the header: from now on record is what every replay sends.
func (c *chunk) seal(stream uint64) {
	h := header{length: c.n, kind: kindData, stream: stream, value: c.off}
	if c.fin {
		h.flags = flagFin
	}
	h.append(c.buf[:0])
	c.left = true
}

// buffers is an Endpoint's memory: pools of chunks of nine sizes, and the budget that they count against.
type buffers struct {
	limit   int64        // Config.Memory
	used    atomic.Int64 // bytes in chunks
	granted atomic.Int64 // bytes of credit beyond what streams begin with
	pools   [9]sync.Pool
}

// class returns the index of the smallest pool whose chunks hold n bytes (1, 2, 4, … 256 KiB), and their size.
func class(n int) (i, size int) {
	for size = 1 << 10; size < n; size <<= 1 {
		i++
	}
	return i, size
}

// get returns an empty chunk for at least n bytes, n <= maxBody.
func (b *buffers) get(n int) *chunk {
	i, size := class(n)
	b.used.Add(int64(size))
	if c, ok := b.pools[i].Get().(*chunk); ok {
		return c
	}
	return &chunk{buf: make([]byte, headerLen+size)}
}

// put takes back a chunk that is in no list. The caller holds the session's lock if others may use it.
func (b *buffers) put(c *chunk) {
	if c.users > 0 {
		c.freed = true
		return
	}
	i, size := class(len(c.buf) - headerLen)
	b.used.Add(-int64(size))
	*c = chunk{buf: c.buf}
	b.pools[i].Put(c)
}

// forget is put for a chunk that somebody may still read, which no lock tells: it is not used again.
func (b *buffers) forget(c *chunk) { b.used.Add(-int64(len(c.buf) - headerLen)) }

// unuse ends one use of c outside the lock.
func (b *buffers) unuse(c *chunk) {
	if c.users--; c.users == 0 && c.freed {
		b.put(c)
	}
}

// over reports whether at least that share of the budget is used.
func (b *buffers) over(percent int64) bool { return b.used.Load()*100 >= b.limit*percent }

// grant reserves n bytes of additional credit if the budget allows it: what is promised stays under 80 %,
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
