package cache

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// counterpart returns the peer's slot that a value of slot is coded against, or nil. The control frames that are due
// must have been submitted before: one of them may say that the slot is gone here. submit is held, so that no later one
// comes before the value.
func (p *Peer) counterpart(w *writer, slot *writerSlot, v *Put) *copyOfSlot {
	if v.Raw {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.predictor(w, slot)
}

// predictor returns the peer's slot of the block that predicts slot, or nil. Where that is the same block, a value of
// it must have come since the last one that was put in slot; a model predicts the results of all its clients. p.mu is
// held.
func (p *Peer) predictor(w *writer, slot *writerSlot) *copyOfSlot {
	s := p.store
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.copies[slot.model]
	switch {
	case from == nil:
		return nil
	case !from.wanted:
		from.wanted = true
		w.want = append(w.want, uint64(from.id))
		w.wake()
	}
	if !from.kept || slot.model == slot.blockKey && from.come == slot.answered {
		return nil
	}
	slot.answered, slot.reversed = from.come, true
	return from
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
		if slot != nil {
			w.keep(slot)
		}
	}
}

// keep has earlier values of a slot kept from now on, if the peer knows the slot and there is room. Peer.mu is held.
func (w *writer) keep(slot *writerSlot) {
	if !slot.put || slot.keeps || slot.leaving || w.used+slot.keepCost() > w.room {
		return
	}
	w.used += slot.keepCost()
	slot.keeps, slot.seen = true, slot.version
	w.predicts[predicted{slot.job, slot.key}]++
	slot.copy.Keep(keepValues)
	w.kept = append(w.kept, uint64(slot.id))
	w.wake()
}

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
