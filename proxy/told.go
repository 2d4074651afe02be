package proxy

import (
	"encoding/binary"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"

	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
)

// tell writes what there is to tell until the stream is lost.
func (v *valueStream) tell() {
	for {
		select {
		case <-v.kick:
		case <-v.dead:
			return
		}
		v.sharer.submit.Lock()
		v.flush()
		v.sharer.submit.Unlock()
	}
}

// flush submits what there is to tell. submit is held.
func (v *valueStream) flush() error {
	s := v.sharer
	s.mu.Lock()
	var t teller
	t.numbers(frame.Forget, v.forget)
	t.numbers(frame.Kept, v.kept) // before the same slot is evicted
	t.numbers(frame.Evict, v.evict)
	for tag, n := range s.told {
		t.add(frame.Delivered, binary.AppendUvarint(tag.Append(t.scratch[:0]), uint64(max(n, 0))))
	}
	if s.held != nil {
		t.prefix = binary.AppendUvarint(nil, s.held.epoch)
		t.numbers(frame.Want, v.want)
		for id, n := range v.seen {
			t.add(frame.Seen, binary.AppendUvarint(binary.AppendUvarint(t.scratch[:0], uint64(id)), n))
		}
	}
	clear(s.told)
	clear(v.seen)
	v.forget, v.kept, v.evict, v.want = v.forget[:0], v.kept[:0], v.evict[:0], v.want[:0]
	s.mu.Unlock()
	out := t.frames()
	if len(out) == 0 {
		return nil
	}
	return v.pipe.Do(pipe.Item{Emit: func() error {
		_, err := v.stream.Write(out)
		return err
	}})
}

// A teller packs what there is to tell into frames.
type teller struct {
	prefix    []byte // of each body
	out, body []byte
	kind      frame.Kind // of body
	scratch   [3 * binary.MaxVarintLen64]byte
}

func (t *teller) numbers(k frame.Kind, numbers []uint64) {
	for _, n := range numbers {
		t.add(k, binary.AppendUvarint(t.scratch[:0], n))
	}
}

// add adds an item to the last frame if it is of that kind and has room, else to a new one.
func (t *teller) add(k frame.Kind, item []byte) {
	if k != t.kind || len(t.body)+len(item) > frame.MaxSmall {
		t.frames()
		t.kind, t.body = k, append(t.body, t.prefix...)
	}
	t.body = append(t.body, item...)
}

// frames returns all frames.
func (t *teller) frames() []byte {
	if len(t.body) > 0 {
		t.out = frame.Append(t.out, frame.Frame{Kind: t.kind, Body: t.body})
	}
	t.kind, t.body = 0, t.body[:0]
	return t.out
}

// hear takes what the peer tells of this side's values.
func (s *sharer) hear(h *holder, f frame.Frame) error {
	r := frame.Fields{B: f.Body}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.Kind {
	case frame.Room:
		h.granted = int64(r.Int())
		if s.out != nil {
			s.out.settle()
		}
	case frame.Delivered:
		for len(r.B) > 0 && !r.Short {
			t := r.Tag()
			s.delivered(t, r.Int())
		}
	case frame.Want:
		s.wanted(&r)
	case frame.Seen:
		if err := s.saw(&r); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: %v on a value stream", frame.ErrFrame, f.Kind)
	}
	if r.Short {
		return fmt.Errorf("%w: %v is cut short", frame.ErrFrame, f.Kind)
	}
	return nil
}

// delivered takes note that n more Refs of a connection were delivered; 0: that all were, or never will be. s.mu is held.
func (s *sharer) delivered(t frame.Tag, n int) {
	c := s.refers[t]
	if c == nil {
		if c = s.shared.liveAs(s.peer, t); c == nil {
			return
		}
	}
	c.farEnded = c.farEnded || n == 0
	if n == 0 {
		delete(s.refers, t)
	}
	if s.out == nil {
		return
	}
	lent := s.out.lent[c]
	if n == 0 || n > len(lent) {
		n = len(lent)
	}
	for _, value := range lent[:n] {
		if value.refs--; value.refs == 0 && value.slot.latest != value {
			s.out.drop(value)
		}
	}
	if s.out.lent[c] = lent[n:]; n == len(lent) {
		delete(s.out.lent, c)
	}
}

// took notes that a Ref of c was delivered here.
func (s *sharer) took(c *connection) { s.note(c.tag, 1) }

// ended notes that c has ended here: no Ref on it will be delivered any more.
func (s *sharer) ended(c *connection) { s.note(c.tag, ended) }

const ended = -1 // in sharer.told: the connection has ended here

// mostTold bounds what waits to be told while the peer takes no value stream.
const mostTold = 1 << 16

func (s *sharer) note(t frame.Tag, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return
	}
	switch before := s.told[t]; {
	case before == ended:
	case n == ended:
		s.told[t] = ended
	default:
		s.told[t] = before + n
	}
	if len(s.told) > mostTold {
		s.held.stream.Reset(frame.ResetByFrames)
	}
	if s.ready(); s.out != nil {
		s.out.kicked()
	}
}
