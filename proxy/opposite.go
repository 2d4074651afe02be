package proxy

import (
	"encoding/binary"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/tensor"
)

// Values in the opposite direction: what a peer has put here predicts what is put there, as the model that a client was
// sent predicts its update. A Block of the form frame.FormReverse is a difference to such a value:
//
//	epoch of the peer's value stream, number of its slot there (varints), encoding of package reference, which names the version
//
// By the time the Block arrives, the peer may have put newer values. So that it still has the one that is meant,
//
//	Want = epoch, slots of the other's stream, whose values are to be kept, for they predict what is put here
//	Kept = slots: from here on keepValues values before the latest are kept, until Seen says that they need not be
//	Seen = epoch, then pairs of a slot of the other's stream and how many of its values have come: what is put here from now on is
//	       coded against the last of these or a later one; 0: the slot was evicted, and nothing is coded against it any more
//
// Who keeps values puts no more than keepValues of them ahead of Seen; what is too fast for that travels by itself.

// maxOpposite is how much longer the form of such a Block is than that of others.
const maxOpposite = 2 * binary.MaxVarintLen64

// keepValues is how many values of a slot may be under way to a peer that codes against them.
const keepValues = 3

// keepCost is the memory that earlier values of a slot take.
func (k valueKey) keepCost() int64 { return keepValues * int64(k.size()) }

// predictor returns the peer's slot of the same block, if a value of it has come since the last one that was put in slot;
// else nil. s.mu is held.
func (s *sharer) predictor(v *valueStream, slot *putSlot) *heldCopy {
	h := s.held
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	from := h.keys[slot.valueKey]
	switch {
	case from == nil:
		return nil
	case !from.wanted:
		from.wanted = true
		v.want = append(v.want, uint64(from.id))
		v.kicked()
	}
	if !from.kept || from.come == slot.answered {
		return nil
	}
	slot.answered = from.come
	return from
}

// against returns the encoder of a slot's values as differences to the peer's.
func (slot *putSlot) against(c codecs.Codec, from *heldCopy) (codecs.Encoder, error) {
	if slot.opposite.enc != nil && slot.opposite.from == from {
		return slot.opposite.enc, nil
	}
	enc, err := reference.NewEncoder(c, slot.dtype, from.copy, slot.copy)
	slot.opposite = oppositeEncoder{enc, from}
	return enc, err
}

// A heldCopy is what is held of a slot's block; come, wanted and kept are guarded by the holder's mu.
type heldCopy struct {
	valueKey
	id    uint32
	epoch uint64 // of the value stream
	copy  *reference.Copy
	come  uint64 // values

	wanted bool // the peer is asked to keep values
	kept   bool // it does
}

// An oppositeEncoder codes a slot's values, as it was declared last, against another's.
type oppositeEncoder struct {
	enc  codecs.Encoder
	from *heldCopy
}

// An oppositeDecoder decodes what an oppositeEncoder makes.
type oppositeDecoder struct {
	dec  codecs.Decoder
	from *reference.Copy
}

// appendOpposite begins the body of a Block against a value of from.
func (from *heldCopy) appendOpposite(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, frame.FormReverse), from.epoch)
	return binary.AppendUvarint(dst, uint64(from.id))
}

// opposite returns the decoder that a Block of frame.FormReverse in slot s needs, and its encoding.
func (h *holder) opposite(s *heldSlot, body []byte) (codecs.Decoder, []byte, error) {
	f := frame.Fields{B: body[1:]}
	epoch, id := uint64(f.Int()), uint32(min(f.Int(), frame.MaxSlots))
	if f.Short {
		return nil, nil, fmt.Errorf("%w: block against a value is cut short", frame.ErrFrame)
	}
	from := h.sharer.keptFor(epoch, id, s.valueKey)
	if from == nil {
		return nil, nil, fmt.Errorf("%w: block against slot %d of stream %d, of which nothing is kept for it", frame.ErrFrame, id, epoch)
	}
	if s.opposite.dec == nil || s.opposite.from != from {
		c, err := h.codecs.codec(s.text)
		if err == nil {
			s.opposite.dec, err = reference.NewDecoder(c, s.dtype, from, s.copy)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", frame.ErrFrame, err)
		}
		s.opposite.from = from
	}
	return s.opposite.dec, f.B, nil
}

// keptFor returns the values of a slot that are kept for the peer to code such a block against, or nil.
func (s *sharer) keptFor(epoch uint64, id uint32, k valueKey) *reference.Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil || s.out.epoch != epoch {
		return nil
	}
	if slot := s.out.numbers[id]; slot != nil && slot.keeps && slot.valueKey == k {
		return slot.copy
	}
	return nil
}

// wanted has earlier values of slots kept, as far as there is room. s.mu is held.
func (s *sharer) wanted(r *frame.Fields) {
	epoch, v := uint64(r.Int()), s.out
	for len(r.B) > 0 && !r.Short {
		id := uint32(min(r.Int(), frame.MaxSlots))
		if v == nil || v.epoch != epoch {
			continue // they are gone
		}
		slot := v.numbers[id]
		if slot == nil || !slot.put || slot.keeps || slot.leaving || v.used+slot.keepCost() > v.room {
			continue
		}
		v.used += slot.keepCost()
		slot.keeps, slot.seen = true, slot.version
		v.predicts[predicted{slot.job, slot.key}]++
		slot.copy.Keep(keepValues)
		v.kept = append(v.kept, uint64(id))
		v.kicked()
	}
}

// A predicted is a tensor, by its Base, whose values the peer codes against.
type predicted struct {
	job string
	key uint64
}

// predicts reports whether the peer wants the values of t, whatever they gain themselves.
func (s *sharer) predicts(job string, t tensor.Tensor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out != nil && s.out.predicts[predicted{job, t.Base}] > 0
}

// ahead reports whether a slot may have no new value before the peer has seen more of the last ones.
func (slot *putSlot) ahead() bool { return slot.keeps && slot.version-slot.seen >= keepValues }

// saw takes note of how much the peer has seen. s.mu is held.
func (s *sharer) saw(r *frame.Fields) error {
	epoch, v := uint64(r.Int()), s.out
	for len(r.B) > 0 && !r.Short {
		id, n := uint32(min(r.Int(), frame.MaxSlots)), uint64(r.Int())
		if v == nil || v.epoch != epoch || r.Short {
			continue
		}
		slot := v.numbers[id]
		switch {
		case slot == nil || !slot.keeps || n > slot.version || n == 0 && !slot.leaving:
			return fmt.Errorf("%w: value %d of slot %d was seen, which was not put or is not kept", frame.ErrFrame, n, id)
		case n == 0:
			v.used -= slot.keepCost()
			v.release(slot)
			p := predicted{slot.job, slot.key}
			if v.predicts[p]--; v.predicts[p] == 0 {
				delete(v.predicts, p)
			}
		default:
			slot.seen = max(slot.seen, n)
		}
	}
	return nil
}

// release lets another block have a slot's number.
func (v *valueStream) release(slot *putSlot) {
	delete(v.numbers, slot.id)
	v.free = append(v.free, slot.id)
}

// keep notes, behind the values before it, that earlier ones of slots are kept there.
func (h *holder) keep(body []byte) error {
	f := frame.Fields{B: body}
	var slots []*heldCopy
	for len(f.B) > 0 {
		id := uint32(min(f.Int(), frame.MaxSlots))
		s := h.slots[id]
		if f.Short || s == nil {
			return fmt.Errorf("%w: slot %d is kept, and was not declared", frame.ErrFrame, id)
		}
		slots = append(slots, s.heldCopy)
	}
	return h.pipe.Do(pipe.Item{Emit: func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, s := range slots {
			s.kept = true
		}
		return nil
	}})
}

// came notes that a slot has one more value; it is told the peer if that keeps earlier ones.
func (h *holder) came(s *heldCopy) {
	h.mu.Lock()
	s.come++
	n, kept := s.come, s.kept
	h.mu.Unlock()
	if kept {
		h.sharer.see(h, s.id, n)
	}
}

// left notes, behind its last value, that a slot was evicted.
func (h *holder) left(s *heldCopy) {
	h.mu.Lock()
	if h.keys[s.valueKey] == s {
		delete(h.keys, s.valueKey)
	}
	kept := s.kept
	h.mu.Unlock()
	if kept {
		h.sharer.see(h, s.id, 0)
	}
}

// see has the peer told how many values of a slot of h have come, or that it is gone here too.
func (s *sharer) see(h *holder, id uint32, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != h || s.out == nil {
		return // one of both streams is lost, and the other will be
	}
	s.out.seen[id] = n
	s.out.kicked()
}
