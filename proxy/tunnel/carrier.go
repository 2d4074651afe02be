package tunnel

import (
	"bufio"
	"cmp"
	"encoding/binary"
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

// A carrier is one connection of a session. One goroutine reads it and one writes it, but while that one waits whoever
// has something to write does it in its place (serve). Its fields from cond on are guarded by the session's lock.
type carrier struct {
	link      Link
	place     place
	dialed    bool // by this side
	datagrams bool // its connection sends datagrams
	kind      string
	first     bool // this side's incarnation is the smaller one
	born      time.Time

	records atomic.Uint64 // received
	network Traffic       // that its peer's counters have

	paced   pacedReader     // the reader's, of link
	in      *bufio.Reader   // the reader's, of paced: small records come many at a time
	scratch [smallBody]byte // the reader's

	cond   sync.Cond // its writer waits for work
	idle   bool      // the writer waits
	served bool      // the writer waits while another goroutine does its work
	dead   bool

	flushing atomic.Bool // its writer may wait for the network
	err      error

	short bool   // WINDOW and DONE have short headers
	out   []byte // small records that the writer has in hand
	big   *chunk // written after them
	padder
	sentAt    time.Time // when it last sent bytes of streams
	gathering alarm     // set while small messages gather; rings for gathered

	flight    flight
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

// appendRecord appends a WINDOW or DONE record to the records that leave next.
func (c *carrier) appendRecord(h header) {
	switch {
	case c.short && h.stream != 0:
		c.out = h.appendShort(c.out)
	case h.kind == kindWindow:
		h.length = windowBody
		c.out = binary.BigEndian.AppendUint64(h.append(c.out), h.credit)
	default:
		c.out = h.append(c.out)
	}
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

// count adds the traffic since the last call to the peer's counters. The caller holds the session's lock.
func (c *carrier) count(far *far, now Traffic) {
	if now.Sent > c.network.Sent {
		far.networkSent.Add(now.Sent - c.network.Sent)
		c.network.Sent = now.Sent
	}
	if now.Received > c.network.Received {
		far.networkReceived.Add(now.Received - c.network.Received)
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
