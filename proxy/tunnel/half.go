package tunnel

import (
	"math"
	"sync"
	"time"
)

// A sendHalf is the sending half of a stream. The session's lock guards its fields.
type sendHalf struct {
	head, tail *chunk // not acknowledged, in order
	next       *chunk // the first of them that waits for a carrier
	queued     queued // st is in one of the session's queues

	end     uint64 // offset behind the last byte written
	left    uint64 // offset behind the last byte that has left
	acked   uint64 // position up to which the peer has everything
	limit   uint64 // credit: offset behind the last byte that may leave
	unsent  int    // bytes that have not left
	flight  int    // bytes that have left and are not acknowledged
	tiny    int    // records of less than tiny bytes among them
	fin     bool   // CloseWrite was called
	finLeft bool
	filling bool // Write copies outside the lock

	rides    bool      // st is in session.riders
	sendCond sync.Cond // Write waits
	waiting  bool
}

type queued uint8

const (
	notQueued queued = iota
	queuedSmall
	queuedBulk
)

// A recvHalf is the receiving half of a stream. The session's lock guards its fields.
type recvHalf struct {
	first, last *chunk   // contiguous, not read
	early       []*chunk // beyond a gap, in order
	earlyTiny   int      // number of early chunks of less than tiny bytes
	handed      *chunk   // the chunk that ReadChunk has handed out

	pos     uint64 // offset of the next byte that Read returns
	have    uint64 // offset behind the last byte without a gap
	far     uint64 // offset behind the last byte at all
	finAt   uint64 // offset at which the direction ends; noEnd: unknown
	finHere bool   // and its end has come, not only been announced
	final   uint64 // after the peer's RESET, offset of its end; noEnd: none

	granted uint64   // credit: the limit that the peer has or will be told
	window  uint64   // its size, from the bytes that were read on
	epoch   struct { // when the window was last judged
		at        time.Time
		pos, have uint64
		spent     bool // since then the peer has used its credit, or nearly
	}
	ackedTo uint64    // position that the peer was told
	toldAt  time.Time // when
	lazyAt  time.Time // when its update became lazy

	recvCond sync.Cond // Read waits
	notify   func()    // of Notify, not called yet; nil: there is none
	waitsAt  time.Time // when Read last took something, or bytes came, or were announced, where none were
}

const (
	noEnd     = math.MaxUint64
	maxWindow = 32 << 20

	// Of records shorter than tiny a stream has no more than maxTiny under way (bytes that are written meanwhile
	// gather in the next one), so that their memory, here and beyond a gap there, stays near that of
	// their bytes.
	tiny    = 1 << 10
	maxTiny = 1 << 10
)

// received returns the position before which everything is here.
func (h *recvHalf) received() uint64 {
	if h.finHere && h.have == h.finAt {
		return h.have + 1
	}
	return h.have
}

// shift takes the first chunk out of the list.
func (h *recvHalf) shift() {
	ch := h.first
	if h.first = ch.next; h.first == nil {
		h.last = nil
	}
	ch.next = nil
}

// peek returns a copy of the next n bytes, which are there.
func (h *recvHalf) peek(n int) []byte {
	b := make([]byte, 0, n)
	for ch := h.first; len(b) < n; ch = ch.next {
		b = append(b, ch.bytes()[:min(n-len(b), ch.n-ch.from)]...)
	}
	return b
}

// unread drops bytes that nobody will read.
func (h *recvHalf) unread(mem *account) {
	for h.first != nil {
		ch := h.first
		h.shift()
		mem.put(ch)
	}
	h.dropEarly(mem)
}

// dropEarly drops the chunks beyond a gap that will not be filled.
func (h *recvHalf) dropEarly(mem *account) {
	for _, ch := range h.early {
		mem.put(ch)
	}
	h.early, h.earlyTiny = nil, 0
}
