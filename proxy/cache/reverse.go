package cache

import (
	"encoding/binary"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
)

// Reverse references: a value that a peer has put here predicts one that is put there, as the model that a client was
// sent predicts its update. A Block of the form frame.FormReverse is a difference to such a value:
//
//	epoch of the peer's value stream, number of its slot there (varints), encoding of package reference, which names the version
//
// By the time the Block arrives, the peer may have put newer values. So that it still has the reference,
//
//	Want = epoch, slots of the other's stream, whose values are to be kept, for they predict the values that are put here
//	Kept = slots: from here on keepValues values before the latest are kept, until Seen says that they need not be
//	Seen = epoch, then pairs of a slot of the other's stream and how many of its values have come: values that are put here from
//	       now on are coded against the last of these or a later one; 0: the slot was evicted, and no value is coded against it any
//	       more
//
// A writer that keeps values puts no more than keepValues of them ahead of Seen; a value that is too fast for that travels by itself.

// counterpart returns the peer's slot that a value of slot is coded against, or nil. The control frames that are due must have been submitted before: one of them may say that
// the slot is gone here. submit is held, so that no later one comes before the value.
func (p *Peer) counterpart(w *writer, slot *writerSlot, v *Put) *copyOfSlot {
	if v.Raw {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.predictor(w, slot)
}

// predictor returns the peer's slot of the same block, if a value of it has come since the last one that was put in slot;
// else nil. p.mu is held.
func (p *Peer) predictor(w *writer, slot *writerSlot) *copyOfSlot {
	s := p.store
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.copies[slot.blockKey]
	switch {
	case from == nil:
		return nil
	case !from.wanted:
		from.wanted = true
		w.want = append(w.want, uint64(from.id))
		w.wake()
	}
	if !from.kept || from.come == slot.answered {
		return nil
	}
	slot.answered, slot.reversed = from.come, true
	return from
}

// against returns the encoder of a slot's values as differences to the peer's.
func (slot *writerSlot) against(c codecs.Codec, from *copyOfSlot) (codecs.Encoder, error) {
	if slot.reverse.enc != nil && slot.reverse.from == from {
		return slot.reverse.enc, nil
	}
	enc, err := reference.NewEncoder(c, slot.dtype, from.copy, slot.copy)
	slot.reverse = reverseEncoder{enc, from}
	return enc, err
}

// appendReverse begins the body of a Block against a value of from.
func (from *copyOfSlot) appendReverse(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, frame.FormReverse), from.epoch)
	return binary.AppendUvarint(dst, uint64(from.id))
}

// reverse returns the decoder that a Block of FormReverse in a slot needs, and its encoding.
func (s *store) reverse(slot *storeSlot, body []byte) (codecs.Decoder, []byte, error) {
	f := frame.Fields{B: body[1:]}
	epoch, id := uint64(f.Int()), uint32(min(f.Int(), frame.MaxSlots))
	if f.Short {
		return nil, nil, fmt.Errorf("%w: block against a value is cut short", frame.ErrFrame)
	}
	from := s.owner.keptFor(epoch, id, slot.blockKey)
	if from == nil {
		return nil, nil, fmt.Errorf("%w: block against slot %d of stream %d, of which nothing is kept for it", frame.ErrFrame, id, epoch)
	}
	if slot.reverse.dec == nil || slot.reverse.from != from {
		c, err := s.codecs.Get(slot.text)
		if err == nil {
			slot.reverse.dec, err = reference.NewDecoder(c, slot.dtype, from, slot.copy)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", frame.ErrFrame, err)
		}
		slot.reverse.from = from
	}
	return slot.reverse.dec, f.B, nil
}

// keptFor returns the values of a slot that are kept for the peer to code such a block against, or nil.
func (p *Peer) keptFor(epoch uint64, id uint32, k blockKey) *reference.Copy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writer == nil || p.writer.epoch != epoch {
		return nil
	}
	if slot := p.writer.numbers[id]; slot != nil && slot.keeps && slot.blockKey == k {
		return slot.copy
	}
	return nil
}

// wanted has earlier values of slots kept, as far as there is room. p.mu is held.
func (p *Peer) wanted(r *frame.Fields) {
	epoch, w := uint64(r.Int()), p.writer
	for len(r.B) > 0 && !r.Short {
		id := uint32(min(r.Int(), frame.MaxSlots))
		if w == nil || w.epoch != epoch {
			continue // they are gone
		}
		slot := w.numbers[id]
		if slot == nil || !slot.put || slot.keeps || slot.leaving || w.used+slot.keepCost() > w.room {
			continue
		}
		w.used += slot.keepCost()
		slot.keeps, slot.seen = true, slot.version
		w.predicts[predicted{slot.job, slot.key}]++
		slot.copy.Keep(keepValues)
		w.kept = append(w.kept, uint64(id))
		w.wake()
	}
}

// ahead reports whether a slot may have no new value before the peer has seen more of the last ones.
func (slot *writerSlot) ahead() bool { return slot.keeps && slot.version-slot.seen >= keepValues }

// saw takes note of how much the peer has seen. p.mu is held.
func (p *Peer) saw(r *frame.Fields) error {
	epoch, w := uint64(r.Int()), p.writer
	for len(r.B) > 0 && !r.Short {
		id, n := uint32(min(r.Int(), frame.MaxSlots)), uint64(r.Int())
		if w == nil || w.epoch != epoch || r.Short {
			continue
		}
		slot := w.numbers[id]
		switch {
		case slot == nil || !slot.keeps || n > slot.version || n == 0 && !slot.leaving:
			return fmt.Errorf("%w: value %d of slot %d was seen, which was not put or is not kept", frame.ErrFrame, n, id)
		case n == 0:
			w.used -= slot.keepCost()
			w.release(slot)
			t := predicted{slot.job, slot.key}
			if w.predicts[t]--; w.predicts[t] == 0 {
				delete(w.predicts, t)
			}
		default:
			slot.seen = max(slot.seen, n)
		}
	}
	return nil
}

// keep notes, behind the values before it, that the peer keeps earlier values of slots.
func (s *store) keep(body []byte) error {
	f := frame.Fields{B: body}
	var copies []*copyOfSlot
	for len(f.B) > 0 {
		id := uint32(min(f.Int(), frame.MaxSlots))
		slot := s.slots[id]
		if f.Short || slot == nil {
			return fmt.Errorf("%w: slot %d is kept, and was not declared", frame.ErrFrame, id)
		}
		copies = append(copies, slot.copyOfSlot)
	}
	return s.pipe.Do(pipe.Item{Emit: func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range copies {
			c.kept = true
		}
		return nil
	}})
}

// came notes that a slot has one more value, and has the peer told if it keeps earlier ones.
func (s *store) came(c *copyOfSlot) {
	s.mu.Lock()
	c.come++
	n, kept := c.come, c.kept
	s.mu.Unlock()
	if kept {
		s.owner.see(s, c.id, n)
	}
}

// left notes, behind its last value, that a slot was evicted.
func (s *store) left(c *copyOfSlot) {
	s.mu.Lock()
	if s.copies[c.blockKey] == c {
		delete(s.copies, c.blockKey)
	}
	kept := c.kept
	s.mu.Unlock()
	if kept {
		s.owner.see(s, c.id, 0)
	}
}

// see has the peer told how many values of a slot of s have come, or that it is gone here too.
func (p *Peer) see(s *store, id uint32, n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store != s || p.writer == nil {
		return // one of both streams is lost, and the other will be
	}
	p.writer.seen[id] = n
	p.writer.wake()
}
