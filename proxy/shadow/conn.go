package shadow

import (
	"sync/atomic"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Current holds the present Shadow, or nil while there is none. It is safe for concurrent use.
type Current = atomic.Pointer[Shadow]

// A Conn shows the Current Shadow the bytes of one direction of a connection. It must be used by one goroutine at a
// time.
type Conn struct {
	current *Current
	peer    string
	has     []string           // names of the codecs that the peer has; nil: all
	span    *span              // nil: no value was sampled since the last Close
	under   map[uint64]copying // by the tensor's key
}

// NewConn returns a Conn for a connection to a peer. has names the codecs that the peer has; nil: it has all.
func NewConn(s *Current, peer string, has []string) *Conn {
	return &Conn{current: s, peer: peer, has: has}
}

// maxUnder bounds the values of a connection that are copied at the same time.
const maxUnder = 64

// A copying is an item some of whose bytes are still to come, with the Shadow that is to have the item. The Current may
// be another Shadow by the time that the last byte is there.
type copying struct {
	*item
	shadow *Shadow
}

// See looks at bytes of the tensor t that the sender is about to send by f. It must be called with a value's bytes in
// order. It copies the bytes of the sample, neither changes nor retains b, and never waits.
func (c *Conn) See(f policy.Flow, t *tensor.Tensor, b []byte) {
	if t.Off == 0 {
		c.begin(f, t)
	} else if t.Off+len(b) >= t.Size {
		c.end(f, t)
	}
	if len(c.under) == 0 {
		return
	}
	x, ok := c.under[t.Key]
	if !ok {
		return
	}
	if x.next != t.Off || x.tensor.Size != t.Size {
		c.forget(x)
		return
	}
	x.take(t.Hold, b)
	if len(x.data) == x.n {
		delete(c.under, t.Key)
		x.shadow.put(x.item)
	}
}

// begin begins to copy a value, if it is of the sample.
func (c *Conn) begin(f policy.Flow, t *tensor.Tensor) {
	s := c.current.Load()
	if s == nil {
		c.Close()
		return
	}
	if x, ok := c.under[t.Key]; ok {
		c.forget(x)
	}
	id, ok := IdentityOf(c.peer, f, t)
	if !ok {
		return
	}
	s.moves(group{c.peer, f.Job, t.Role}, t.Size, false)
	if len(c.under) >= maxUnder {
		return
	}
	w, off, n := s.begins(&id)
	if w == nil || !s.reserve(n) {
		return
	}
	if c.under == nil {
		c.under = map[uint64]copying{}
	}
	if c.span == nil {
		c.span = &span{}
		c.span.holders.Add(1)
	}
	c.span.holders.Add(1)
	x := &item{window: w, span: c.span, has: c.has, tensor: *t, flow: f, off: off, n: n, data: make([]byte, 0, n)}
	c.under[t.Key] = copying{x, s}
}

// end notes that the last bytes of a value have come.
func (c *Conn) end(f policy.Flow, t *tensor.Tensor) {
	if s := c.current.Load(); s != nil {
		if _, ok := IdentityOf(c.peer, f, t); ok {
			s.moves(group{c.peer, f.Job, t.Role}, 0, true)
		}
	}
}

// forget gives up a value that lacks bytes.
func (c *Conn) forget(x copying) {
	delete(c.under, x.tensor.Key)
	x.shadow.release(x.item, false)
}

// Close forgets the values that are being copied. The caller says by it that no more bytes come for a while, or ever;
// later bytes count as those of a new connection.
func (c *Conn) Close() {
	for _, x := range c.under {
		c.forget(x)
	}
	if c.span != nil {
		c.span.holders.Add(-1)
		c.span = nil
	}
}
