package tunnel

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// readEnds ends the carrier, since read has returned err. If both sides have left in order, it waits until the writer
// has as well.
func (s *session) readEnds(c *carrier, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == io.EOF && c.leaving && c.peerLeft {
		for !c.closed && !c.dead { // chunks that left on it are not acknowledged yet
			c.cond.Wait()
		}
		err = errRetired
	}
	s.kill(c, err)
}

// read takes records until one has brought the opening of a stream, which it returns, or the carrier ends: then it
// returns an error, perhaps with an opening as well.
func (s *session) read(c *carrier) (*Incoming, error) {
	var room [maxAnyHeader]byte
	for {
		h, err := c.readHeader(&room)
		if err != nil {
			return nil, err
		}
		c.records.Add(1)
		c.paced.spend()
		var in *Incoming
		if h.kind == kindData {
			in, err = s.data(c, h)
		} else {
			var body []byte
			if body, err = c.body(h); err == nil {
				err = s.control(c, h, body)
			}
		}
		if in != nil || err != nil {
			return in, err
		}
	}
}

// readHeader reads the next header, long or short, into room.
func (c *carrier) readHeader(room *[maxAnyHeader]byte) (header, error) {
	if _, err := io.ReadFull(c.in, room[:1]); err != nil {
		return header{}, err
	}
	short := room[0] >= shortMark
	b := room[:headerLen]
	if short {
		b = room[:1+room[0]&maxShort]
	}
	if _, err := io.ReadFull(c.in, b[1:]); err != nil {
		if err == io.EOF { // EOF is for an end between records
			err = io.ErrUnexpectedEOF
		}
		return header{}, err
	}
	var h header
	var err error
	if short {
		h, err = parseShort(b, maxBody)
	} else {
		h, err = parseHeader((*[headerLen]byte)(b), maxBody)
	}
	if err != nil {
		return h, broken("%w", err)
	}
	return h, nil
}

// body reads a body of at most smallBody bytes. They are valid until the next record.
func (c *carrier) body(h header) ([]byte, error) {
	if h.length > len(c.scratch) { // only a HELLO can be
		return nil, broken("%v record of %d bytes on an attached carrier", h.kind, h.length)
	}
	_, err := io.ReadFull(c.in, c.scratch[:h.length])
	return c.scratch[:h.length], err
}

// control acts on a record that is not DATA.
func (s *session) control(c *carrier, h header, body []byte) error {
	if h.kind == kindEnd {
		return fmt.Errorf("%w: %q", errEnded, body)
	}
	if h.kind == kindPad {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil
	}
	switch h.kind {
	case kindWindow:
		if len(body) > 0 { // its header is long
			h.credit = binary.BigEndian.Uint64(body)
		}
		return s.windowed(h.stream, h.value, h.credit)
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
			c.pongs++
			c.doneInPing = c.doneInPing[:0]
			s.addRTT(time.Since(c.pinged))
			c.wake() // there may be DONEs that waited for it
		}
	case kindGoAway:
		s.goneAway = true
		s.openCond.Broadcast()
	case kindLeave:
		c.peerLeft = true
		s.leave(c)
		c.wake()
	default:
		return broken("%v record on an attached carrier", h.kind)
	}
	return nil
}

// data takes the body of a DATA record, which may complete an opening. All that can be wrong with it is found before a
// byte of it is stored.
func (s *session) data(c *carrier, h header) (in *Incoming, err error) {
	if h.length <= smallBody {
		body, err := c.body(h)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		st, err := s.incoming(h)
		if st == nil {
			return nil, err
		}
		err = s.takeSmall(st, h, body)
		return s.handOn(st), err
	}
	s.mu.Lock()
	st, err := s.incoming(h)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for off := 0; off < h.length; off += pieceSize {
		n := min(pieceSize, h.length-off)
		if st == nil {
			if _, err := io.CopyN(io.Discard, c.in, int64(n)); err != nil {
				return in, err
			}
			continue
		}
		ch := s.mem.get(n)
		ch.off, ch.n = h.value+uint64(off), n
		ch.fin = h.flags&flagFin != 0 && off+n == h.length
		_, err := io.ReadFull(c.in, ch.bytes())
		s.mu.Lock()
		if err != nil {
			s.mem.put(ch)
		} else {
			err = s.take(st, ch)
		}
		if in == nil {
			in = s.handOn(st)
		}
		s.mu.Unlock()
		if err != nil {
			return in, err
		}
	}
	return in, nil
}
