package tunnel

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Life of a carrier.
const (
	pingEvery   = 5 * time.Second
	deadAfter   = 15 * time.Second // without a byte
	leaveWithin = 30 * time.Second // of LEAVE: then it is lost, and its chunks leave again
	endWithin   = time.Second      // for an END to reach the peer
	rotateAfter = time.Hour
)

// A carrier is one connection of a session. One goroutine reads it and one writes it, but while that one waits whoever has
// something to write does it in its place (serve). Its fields below session are guarded by the session's lock.
type carrier struct {
	link      Link
	place     place
	dialed    bool // by this side
	datagrams bool // its connection sends datagrams
	first     bool // this side's incarnation is the smaller one
	born      time.Time

	records atomic.Uint64 // received
	network Traffic       // that its peer's counters have

	scratch [smallBody]byte // the reader's

	session *session
	cond    sync.Cond // its writer waits for work
	idle    bool      // the writer waits
	served  bool      // the writer waits while another goroutine does its work
	dead    bool

	flushing atomic.Bool // its writer may wait for the network
	err      error

	out []byte // small records that the writer has in hand
	big *chunk // written after them
	padder
	gatherer

	flight    int  // chunks that left on it and are not acknowledged
	goAwayDue bool // records to send on this carrier
	pingDue   bool
	leaveDue  bool
	pongDue   bool
	pong      uint64

	leaving  bool // it takes no more chunks, and ends when the chunks that left on it are acknowledged
	peerLeft bool // nor does the peer send any
	closed   bool // its writer has ended in order
	leftAt   time.Time
	end      []byte // the END record that ends it

	pinging    bool   // a PING is out
	pongs      uint64 // that have come
	token      uint64
	pinged     time.Time
	heard      time.Time // when bytes last came
	heardAt    uint64    // how many there were
	waits      time.Time // when it was first seen that bytes wait for a sign of life; zero: none do
	doneUnsure []uint64  // streams whose DONE left since the last PING
	doneInPing []uint64  // before it: the PONG says that they have arrived
}

// compare orders carriers: by slot, then by generation, and where both sides dialed at once by the dialer.
func (c *carrier) compare(o *carrier) int {
	return cmp.Or(
		cmp.Compare(c.place.slot, o.place.slot),
		cmp.Compare(c.place.generation, o.place.generation),
		cmp.Compare(c.rank(), o.rank()),
	)
}

// rank is 1 for carriers dialed by the side with the smaller incarnation, 0 for the others.
func (c *carrier) rank() int {
	if c.dialed == c.first {
		return 1
	}
	return 0
}

// kill ends the carrier at once. The caller holds the session's lock.
func (c *carrier) kill(err error) {
	if c.dead {
		return
	}
	c.dead, c.err = true, err
	if c.datagrams && c.dialed && !c.leaving && c.session.err == nil && !errors.Is(err, errRetired) {
		c.session.peer.blocked(err)
	}
	c.session.detach(c)
	c.cond.Broadcast()
	c.link.Close()
	c.session.peer.e.carrierDown(c.session.peer, c, err)
}

// leave retires the carrier: nothing more leaves on it.
func (c *carrier) leave() {
	if c.leaving || c.dead {
		return
	}
	c.leaving, c.leaveDue, c.leftAt = true, true, time.Now()
	c.session.vacant[c.place.slot] = c.leftAt
	c.session.wakeAll()
}

// finish ends the carrier with an END record.
func (c *carrier) finish(text string) {
	if c.dead || c.end != nil {
		return
	}
	text = text[:min(len(text), maxText)]
	c.end = append(header{kind: kindEnd, length: len(text)}.append(nil), text...)
	c.cond.Broadcast()
	time.AfterFunc(endWithin, func() { c.link.Close() })
}

// count adds the traffic since the last call to the peer's counters. The caller holds the session's lock.
func (c *carrier) count(now Traffic) {
	p := c.session.peer
	if now.Sent > c.network.Sent {
		p.networkSent.Add(now.Sent - c.network.Sent)
		c.network.Sent = now.Sent
	}
	if now.Received > c.network.Received {
		p.networkReceived.Add(now.Received - c.network.Received)
		c.network.Received = now.Received
	}
}

// wake makes the writer look for work.
func (c *carrier) wake() {
	if c.idle {
		c.idle = false
		c.cond.Broadcast()
	}
}
