package tunnel

import (
	"encoding/binary"
	"time"
)

// The choice of the chunks and records that leave next on a carrier. The functions of this file are called with the
// session's lock held.
//
// A small chunk of a stream that has little under way goes to the express carrier, the first one, and so
// overtakes the bytes of other streams in the sockets of the others. A stream with more under way would gain
// nothing, since its bytes are put in order again: it goes with the bulk, so that the express stays empty.

// next fills c.out and c.big with the records that c sends next; false: there are none.
func (s *session) next(c *carrier) bool {
	c.out, c.big = c.out[:0], nil
	if c.dead || c.end != nil || c.closed {
		return false
	}
	if s.gathers(c) {
		return false
	}
	s.nextOwn(c)
	if !c.leaving {
		s.nextControl(c)
		s.addRiders(c)
		s.nextChunks(c)
		if len(c.out) > 0 {
			s.nextLazy(c)
		}
	}
	return len(c.out) > 0 || c.big != nil
}

// nextOwn appends the records that are about c itself. The PING comes before any DONE of this batch: its PONG
// vouches only for the records before it.
func (s *session) nextOwn(c *carrier) {
	if c.pongDue {
		c.pongDue = false
		c.out = header{kind: kindPong, value: c.pong}.append(c.out)
	}
	if (c.pingDue || len(c.doneUnsure) >= 1024) && !c.pinging {
		c.pingDue, c.pinging, c.pinged = false, true, time.Now()
		c.token++
		c.doneInPing, c.doneUnsure = c.doneUnsure, c.doneInPing[:0]
		c.out = header{kind: kindPing, value: c.token}.append(c.out)
	}
	if c.goAwayDue {
		c.goAwayDue = false
		c.out = header{kind: kindGoAway}.append(c.out)
	}
	if c.leaveDue {
		c.leaveDue = false
		c.out = header{kind: kindLeave}.append(c.out)
	}
}

// nextControl appends the records about streams.
func (s *session) nextControl(c *carrier) {
	for s.dones.n > 0 && len(c.out) < batchSize/2 && len(c.doneUnsure) < s.maxDones() {
		id := s.dones.pop()
		c.doneUnsure = append(c.doneUnsure, id)
		c.appendRecord(header{kind: kindDone, stream: id})
	}
	for s.urgent.n > 0 && len(c.out) < batchSize/2 {
		st := s.urgent.pop()
		if st.update != updateUrgent {
			continue
		}
		st.update = updateNone
		switch {
		case st.gone:
		case st.aborted:
			c.out = header{kind: kindReset, length: 4, stream: st.id, value: st.left}.append(c.out)
			c.out = binary.BigEndian.AppendUint32(c.out, uint32(st.code))
		default:
			s.tell(c, st)
		}
	}
	s.raise()
	if s.allow {
		s.allow = false
		c.appendRecord(header{kind: kindWindow, credit: s.allowed})
	}
}

// nextChunks takes chunks of streams in turn: small ones into the batch, and one of the bulk. Where the
// express carrier is busy another one helps it.
func (s *session) nextChunks(c *carrier) {
	express, only := s.express()
	if c == express {
		s.nextSmall(c)
	}
	if c != express || only {
		s.nextBulk(c)
	}
	if c != express && c.big == nil && express.flushing.Load() {
		s.nextSmall(c)
		s.nextBulk(c) // to which some may have gone over
	}
}

func (s *session) nextSmall(c *carrier) {
	for s.small.n > 0 && c.big == nil {
		st := s.small.peek()
		ch := st.next
		switch {
		case ch == nil || ch.state != chunkQueued: // reset, or Write copies into it and will put it here again
			st.queued = notQueued
			s.small.pop()
		case !st.express(ch):
			s.small.pop()
			st.queued = queuedBulk
			s.bulk.push(st)
			if c := s.waiting(false); c != nil {
				c.wake()
			}
		case len(c.out) > 0 && len(c.out)+headerLen+ch.n > batchSize:
			return
		default:
			s.small.pop()
			s.send(c, st, ch)
			s.enqueue(st, c)
		}
	}
}

func (s *session) nextBulk(c *carrier) {
	for s.bulk.n > 0 && c.big == nil {
		st := s.bulk.pop()
		ch := st.next
		if ch == nil || ch.state != chunkQueued {
			st.queued = notQueued
			continue
		}
		s.send(c, st, ch)
		s.enqueue(st, c)
		if len(c.out) >= batchSize {
			return
		}
	}
}

// send makes ch leave on c.
func (s *session) send(c *carrier, st *stream, ch *chunk) {
	st.queued = notQueued
	s.leaves(st, ch, c)
	c.full, c.sentAt = true, time.Now()
	if len(c.out)+headerLen+ch.n <= batchSize {
		c.out = append(c.out, ch.record()...)
	} else {
		c.big = ch
		ch.users++
	}
}
