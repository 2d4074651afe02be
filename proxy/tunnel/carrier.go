package tunnel

import (
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Life of a carrier.
const (
	pingEvery   = 5 * time.Second
	deadAfter   = 15 * time.Second // without a record
	leaveWithin = 30 * time.Second // of LEAVE: then it is lost, and what is on it leaves again
	endWithin   = time.Second      // for an END to reach the peer

	rotateBytes   = 64 << 30 // RFC 8446, 5.5: AES-GCM is good for 2^24.5 records under one key,
	rotateRecords = 1 << 24  // and crypto/tls starts no key update of its own
	rotateAfter   = time.Hour
)

// A carrier is one connection of a session. One goroutine reads it and one writes it. Its fields below session
// are guarded by the session's lock.
type carrier struct {
	conn   conn        // records, in clear
	raw    net.Conn    // beneath, for its options and to end it at once
	gather *gatherConn // between the two
	place  place
	dialed bool // by this side
	first  bool // this side's incarnation is the smaller one
	born   time.Time

	keys    *loaded   // this side's certificate; nil: in clear
	renewal time.Time // by Config.Now, when a new carrier should come before the first certificate ends,
	expiry  time.Time // and when it does; zero: never

	records atomic.Uint64 // taken from it
	taken   atomic.Uint64 // bytes of them
	written atomic.Uint64 // bytes handed to it
	writes  atomic.Uint64 // records of TLS, about

	scratch [smallBody]byte // the reader's

	session *session
	cond    sync.Cond // its writer waits for work
	idle    bool      // the writer waits
	dead    bool
	err     error

	out []byte // small records that the writer has in hand
	big *chunk // what it writes after them

	flight    int  // chunks that left on it and are not acknowledged
	goAwayDue bool // records to send on this carrier
	pingDue   bool
	leaveDue  bool
	pongDue   bool
	pong      uint64

	leaving  bool // it takes no more chunks, and ends when those that left on it are acknowledged
	peerLeft bool // nor does the peer send any
	closed   bool // its writer has ended in order
	leftAt   time.Time
	end      []byte // the END record that ends it

	pinging    bool // a PING is out
	token      uint64
	pinged     time.Time
	heard      time.Time // when records last changed
	heardAt    uint64
	doneUnsure []uint64 // streams whose DONE left since the last PING
	doneInPing []uint64 // before it: the PONG says that they have arrived
}

// conn is what a carrier writes records to: TLS, or in clear the gatherConn itself.
type conn interface {
	io.ReadWriter
}

// compare orders carriers: by slot, then by generation, and where both sides dialed at once by who did.
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
	c.session.detach(c)
	c.cond.Broadcast()
	c.raw.Close()
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
	time.AfterFunc(endWithin, func() { c.raw.Close() })
}

// write sends what the session has for this carrier until it dies or has left.
func (c *carrier) write() {
	err := c.writeAll()
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	c.release()
	if err != nil {
		c.kill(err)
		return
	}
	c.closed = true
	c.cond.Broadcast()
}

func (c *carrier) writeAll() error {
	for {
		work, end := c.await()
		if !work {
			return c.close(end)
		}
		if err := c.put(c.out); err != nil {
			return err
		}
		if c.big != nil {
			if err := c.put(c.big.record()); err != nil {
				return err
			}
		}
		if c.gather.gathered() >= gatherSize {
			if err := c.gather.flush(); err != nil {
				return err
			}
		}
	}
}

// await waits until c.out and c.big are there to be written, or reports that the carrier ends, with what last
// record. Whenever it has to wait, what was written so far is flushed.
func (c *carrier) await() (work bool, end []byte) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	c.release()
	for !s.next(c) {
		switch {
		case c.dead || c.end != nil || c.leaving && c.peerLeft && c.flight == 0:
			return false, c.end
		case c.gather.gathered() > 0:
			s.mu.Unlock()
			err := c.gather.flush()
			s.mu.Lock()
			if err != nil {
				c.kill(err)
			}
		default:
			c.idle = true
			c.cond.Wait()
			c.idle = false
		}
	}
	return true, nil
}

// release gives back the chunk that was written.
func (c *carrier) release() {
	if c.big != nil {
		c.session.mem.unuse(c.big)
		c.big = nil
	}
}

// put hands b to TLS.
func (c *carrier) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	c.written.Add(uint64(len(b)))
	c.writes.Add(uint64(len(b)+16383) >> 14)
	_, err := c.conn.Write(b)
	return err
}

// close writes a last record and says that nothing follows.
func (c *carrier) close(end []byte) error {
	if err := c.put(end); err != nil {
		return err
	}
	if err := c.closeWrite(); err != nil {
		return err
	}
	if t, ok := c.raw.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return nil
}

// closeWrite has TLS say that nothing follows, and flushes.
func (c *carrier) closeWrite() error {
	if t, ok := c.conn.(*tls.Conn); ok {
		if err := t.CloseWrite(); err != nil {
			return err
		}
		c.raw.SetWriteDeadline(time.Now().Add(handshakeWithin)) // TLS sets one that is over, before this is flushed
	}
	return c.gather.flush()
}

// errBroken: what came on a carrier breaks the protocol, so that nothing can be believed any longer.
var errBroken = errors.New("protocol broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errBroken, fmt.Errorf(format, args...))
}

// read takes records until the carrier ends.
func (c *carrier) read() {
	err := c.readAll()
	s := c.session
	if errors.Is(err, errBroken) {
		s.fail(err, err.Error())
		io.Copy(io.Discard, c.conn) // closing before the peer has read the END would take it back
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == io.EOF && c.leaving && c.peerLeft {
		for !c.closed && !c.dead { // what left on it is not acknowledged yet
			c.cond.Wait()
		}
		err = errRetired
	}
	c.kill(err)
}

// errRetired ends a carrier that both sides have left.
var errRetired = errors.New("retired")

func (c *carrier) readAll() error {
	var head [headerLen]byte
	for {
		if _, err := io.ReadFull(c.conn, head[:]); err != nil {
			return err
		}
		h, err := parseHeader(&head, maxBody)
		if err != nil {
			return broken("%w", err)
		}
		c.records.Add(1)
		c.taken.Add(uint64(headerLen + h.length))
		if h.kind == kindData {
			err = c.data(h)
		} else {
			var body []byte
			if body, err = c.body(h.length); err == nil {
				err = c.control(h, body)
			}
		}
		if err != nil {
			return err
		}
	}
}

// body reads n bytes, n <= smallBody. They are valid until the next record.
func (c *carrier) body(n int) ([]byte, error) {
	if n > len(c.scratch) {
		return nil, broken("record of %d bytes that this side does not expect here", n)
	}
	_, err := io.ReadFull(c.conn, c.scratch[:n])
	return c.scratch[:n], err
}

// control acts on a record that is not DATA.
func (c *carrier) control(h header, body []byte) error {
	s := c.session
	if h.kind == kindEnd {
		s.fail(fmt.Errorf("ended by the peer: %q", body), "")
		return io.EOF
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil
	}
	switch h.kind {
	case kindWindow:
		return s.windowed(h.stream, h.value, binary.BigEndian.Uint64(body))
	case kindReset:
		return s.reset(h.stream, h.value, Code(binary.BigEndian.Uint32(body)))
	case kindDone:
		return s.done(h.stream)
	case kindPing:
		c.pongDue, c.pong = true, h.value
		c.wake()
	case kindPong:
		if c.pinging && h.value == c.token {
			c.pinging = false
			c.doneInPing = c.doneInPing[:0]
			s.addRTT(time.Since(c.pinged))
		}
	case kindGoAway:
		s.goneAway = true
		s.openCond.Broadcast()
	case kindLeave:
		c.peerLeft = true
		c.leave()
		c.wake()
	default:
		return broken("%v record on an attached carrier", h.kind)
	}
	return nil
}

// wake makes the writer look for work.
func (c *carrier) wake() {
	if c.idle {
		c.idle = false
		c.cond.Broadcast()
	}
}
