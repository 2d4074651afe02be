package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The first bytes of a stream are the opening: its length (2 bytes) and the opener's bytes. The first bytes of
// the other direction are the answer: a Code (4 bytes, 0: accepted), the length of a text (2 bytes) and the
// text. Being bytes of the stream they arrive once, in order and through any loss of carriers.

// open opens a stream and waits for the answer.
func (s *session) open(ctx context.Context, opening []byte) (*Stream, error) {
	if len(opening) > maxOpening {
		return nil, fmt.Errorf("tunnel: opening of %d bytes, more than %d", len(opening), maxOpening)
	}
	st, err := s.create(ctx)
	if err != nil {
		return nil, err
	}
	st.sentBase = 2 + uint64(len(opening))
	stop := context.AfterFunc(ctx, func() { st.Reset(CodeCanceled) })
	err = st.negotiate(opening)
	if errors.Is(err, ErrSessionLost) && st.nothingSent() {
		err = fmt.Errorf("%w: %s", ErrNotSent, s.peer.name)
	}
	if !stop() {
		err = fmt.Errorf("tunnel: opening a stream to %s: %w", s.peer.name, context.Cause(ctx))
	}
	if err != nil {
		st.Reset(CodeCanceled) // of no effect on a stream that has ended
		return nil, err
	}
	return st, nil
}

// nothingSent reports whether no byte of a stream has been given to a carrier.
func (st *Stream) nothingSent() bool {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.left == 0
}

// create waits until the peer allows another stream, and makes it.
func (s *session) create(ctx context.Context) (*Stream, error) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.openCond.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("tunnel: opening a stream to %s, which has %d: %w", s.peer.name, len(s.streams), context.Cause(ctx))
		case s.err != nil:
			if errors.Is(s.err, ErrSessionLost) {
				return nil, fmt.Errorf("%w: %w", ErrNotSent, s.err)
			}
			return nil, s.err
		case s.draining:
			return nil, fmt.Errorf("%w: this side", ErrDraining)
		case s.goneAway:
			return nil, fmt.Errorf("%w: %s", ErrDraining, s.peer.name)
		case s.opened < s.openLimit:
			s.opened++
			return s.newStream(streamID(s.opened-1, s.even)), nil
		}
		s.openCond.Wait()
	}
}

// negotiate sends the opening and takes the answer.
func (st *Stream) negotiate(opening []byte) error {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(opening)), uint16(len(opening)))
	if _, err := st.Write(append(b, opening...)); err != nil {
		return err
	}
	var head [6]byte
	if _, err := io.ReadFull(st, head[:]); err != nil {
		return fmt.Errorf("no answer to the opening: %w", err)
	}
	n := int(binary.BigEndian.Uint16(head[4:]))
	if n > maxText {
		return fmt.Errorf("tunnel: %s answers with a text of %d bytes", st.Peer(), n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(st, text); err != nil {
		return fmt.Errorf("answer to the opening cut short: %w", err)
	}
	st.session.mu.Lock()
	st.recvBase = uint64(len(head) + n)
	st.session.mu.Unlock()
	if code := Code(binary.BigEndian.Uint32(head[:])); code != 0 {
		st.Close()
		return &RefusedError{Peer: st.Peer(), Code: code, Text: oneLine(text)}
	}
	return nil
}

// opening is called when bytes have come of a stream that the peer opens; once the opening is whole, Accept
// is called with it. The lock is held.
func (st *Stream) opening() error {
	have := int(st.have - st.pos)
	if have < 2 {
		return st.openingEnds()
	}
	head := st.peek(2)
	n := int(binary.BigEndian.Uint16(head))
	if n > maxOpening {
		return broken("stream %d with an opening of %d bytes, more than %d", st.id, n, maxOpening)
	}
	if have < 2+n {
		return st.openingEnds()
	}
	opening := st.peek(2 + n)[2:]
	for left := 2 + n; left > 0; {
		ch := st.first
		take := min(left, ch.n-ch.from)
		left -= take
		if ch.from += take; ch.from == ch.n {
			st.shift()
			st.session.mem.put(ch)
		}
	}
	st.answered, st.deciding = true, true
	st.recvBase = uint64(2 + n)
	st.consumed(2 + n)
	in := &Incoming{st: st}
	switch {
	case st.session.draining:
		in.refuse(CodeDraining, "")
	case st.session.mem.over(90):
		in.refuse(CodeMemory, "")
	default:
		st.session.peer.openings.come(in, opening)
	}
	return nil
}

// openingEnds is an error if the stream has ended within its opening.
func (st *Stream) openingEnds() error {
	if st.finHere {
		return broken("stream %d ends within its opening", st.id)
	}
	return nil
}

// peek returns a copy of the next n bytes, which are there.
func (st *Stream) peek(n int) []byte {
	b := make([]byte, 0, n)
	for ch := st.first; len(b) < n; ch = ch.next {
		b = append(b, ch.bytes()[:min(n-len(b), ch.n-ch.from)]...)
	}
	return b
}

// windowed acts on WINDOW. For stream 0 it says how many streams this side may open.
func (s *session) windowed(id, acked, limit uint64) error {
	if id == 0 {
		if limit > s.openLimit {
			s.openLimit = min(limit, maxStream/2)
			s.openCond.Broadcast()
		}
		return nil
	}
	if st := s.streams[id]; st != nil {
		return st.acknowledge(acked, limit)
	}
	return s.possible(kindWindow, id) // over, or not here yet
}

// repeatDone queues a DONE once more for a stream that is over. A peer that asks faster than it takes the answers is broken, or
// wants our memory.
func (s *session) repeatDone(id uint64) error {
	if most := s.maxDones(); s.dones.n >= most {
		return broken("over %d records for streams that are over, and none of the answers is taken", most)
	}
	s.dones.push(id)
	s.wakeControl()
	return nil
}

// maxDones returns how many DONEs may wait for the peer, or be on their way to it.
func (s *session) maxDones() int { return max(4096, 4*s.peer.e.cfg.Streams) }

// reset acts on RESET. It may come before any DATA of its stream.
func (s *session) reset(id, final uint64, code Code) error {
	st := s.streams[id]
	if st == nil {
		fresh, err := s.judge(header{kind: kindReset, stream: id})
		if err != nil {
			return err
		}
		if fresh {
			s.finishedOne()
		}
		return s.repeatDone(id)
	}
	if st.final != noEnd {
		return nil
	}
	switch {
	case final > st.granted:
		return broken("RESET ends stream %d at %d, beyond its credit of %d", id, final, st.granted)
	case final < st.far:
		return broken("RESET ends stream %d at %d, after DATA up to %d", id, final, st.far)
	case st.finAt != noEnd && final != st.finAt:
		return broken("RESET ends stream %d at %d, after FIN at %d", id, final, st.finAt)
	}
	st.final = final
	st.dropAll()
	if st.unborn() {
		st.closed = true
		st.letGo()
	}
	st.die(&ResetError{Peer: s.peer.name, Code: code, Remote: true})
	st.settle()
	return nil
}

// done acts on DONE: the peer has forgotten the stream. It can once both directions have ended, or this side has
// reset it: were a stream that still sends taken for over, nothing would ever free its bytes.
func (s *session) done(id uint64) error {
	st := s.streams[id]
	if st == nil {
		return s.possible(kindDone, id)
	}
	if !st.aborted && !(st.finHere && st.finLeft) && (st.final == noEnd || st.have < st.final) {
		return broken("DONE for stream %d, which has not ended", id)
	}
	st.peerDone = true
	st.dropAll()
	st.settle()
	return nil
}
