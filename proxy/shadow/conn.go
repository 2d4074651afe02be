package shadow

import (
	"sync/atomic"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Current is the Shadow of the moment; nil: none. It is safe for concurrent use.
type Current = atomic.Pointer[Shadow]

// A Conn looks at the bytes of one direction of a connection. It is used by one goroutine at a time.
type Conn struct {
	current *Current
	peer    string
	has     []string         // names of the codecs that the peer has; nil: all
	span    *span            // nil: no value was sampled since the last Close
	under   map[uint64]*item // being copied, by the tensor's key
}

// NewConn returns a Conn for a connection to a peer, which has the codecs of these names; nil: all.
func NewConn(s *Current, peer string, has []string) *Conn {
	return &Conn{current: s, peer: peer, has: has}
}

// An item is one sampled value on its way to the goroutine.
type item struct {
	shadow *Shadow
	window *window
	span   *span // of its connection
	has    []string
	tensor tensor.Tensor
	flow   policy.Flow
	off, n int    // the piece
	data   []byte // of it, as far as it came
	pieces []Piece
	next   int // where in the tensor the next bytes begin
}

const (
	maxUnder  = 64  // values of a connection that are copied at a time
	maxPieces = 256 // of one value; of a value in more pieces the rest has one length
)

// See looks at bytes of a tensor that the sender is about to send by f, in order. It copies bytes of the sample, neither changes nor retains b, and never waits.
func (c *Conn) See(f policy.Flow, t *tensor.Tensor, b []byte) {
	if t.Off == 0 {
		c.begin(f, t)
	}
	if len(c.under) == 0 {
		return
	}
	x := c.under[t.Key]
	if x == nil {
		return
	}
	if x.next != t.Off || x.tensor.Size != t.Size {
		c.forget(x)
		return
	}
	x.take(t.Hold, b)
	if len(x.data) == x.n {
		delete(c.under, t.Key)
		x.shadow.put(x)
	}
}

// begin begins to copy a value, if it is of the sample.
func (c *Conn) begin(f policy.Flow, t *tensor.Tensor) {
	s := c.current.Load()
	if s == nil {
		c.Close()
		return
	}
	if x := c.under[t.Key]; x != nil {
		c.forget(x)
	}
	id, ok := IdentityOf(c.peer, f, t)
	if !ok || len(c.under) >= maxUnder {
		return
	}
	w, off, n := s.begins(&id)
	if w == nil || !s.reserve(n) {
		return
	}
	if c.under == nil {
		c.under = map[uint64]*item{}
	}
	if c.span == nil {
		c.span = &span{}
		c.span.holders.Add(1)
	}
	c.span.holders.Add(1)
	x := &item{shadow: s, window: w, span: c.span, has: c.has, tensor: *t, flow: f, off: off, n: n, data: make([]byte, 0, n)}
	c.under[t.Key] = x
}

// take copies the part of b that lies in the piece.
func (x *item) take(hold int, b []byte) {
	begin, end := max(0, x.off-x.next), min(len(b), x.off+x.n-x.next)
	x.next += len(b)
	if begin >= end {
		return
	}
	n := end - begin
	x.data = append(x.data, b[begin:end]...)
	if hold > 0 {
		hold = min(max(hold-begin, 1), x.n-(len(x.data)-n))
	}
	if last := len(x.pieces) - 1; last >= 0 && (x.pieces[last].Hold-x.pieces[last].Len == hold || last == maxPieces-1) {
		x.pieces[last].Len += n
		return
	}
	x.pieces = append(x.pieces, Piece{n, hold})
}

// forget gives up a value that lacks bytes.
func (c *Conn) forget(x *item) {
	delete(c.under, x.tensor.Key)
	x.shadow.release(x, false)
}

// Close forgets the values that are under way, and says that no more bytes come for a while, or ever. Bytes that come after all count as a new connection's.
func (c *Conn) Close() {
	for _, x := range c.under {
		c.forget(x)
	}
	if c.span != nil {
		c.span.holders.Add(-1)
		c.span = nil
	}
}

// reserve takes room in the queue for a value, or counts that there was none.
func (s *Shadow) reserve(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued+int64(n) > s.queueMemory() {
		s.stats.Dropped++
		return false
	}
	s.queued += int64(n)
	return true
}

// release gives the room of a value back. dropped: the queue was full.
func (s *Shadow) release(x *item, dropped bool) {
	x.span.holders.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued -= int64(x.n)
	if dropped {
		s.stats.Dropped++
	}
}

// put queues a whole value, or drops it.
func (s *Shadow) put(x *item) {
	select {
	case s.queue <- x:
	default:
		s.release(x, true)
	}
}
