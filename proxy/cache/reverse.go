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
// The reference is a value of the same block, or, where the slot's Declare names another tensor as its Base (the peer
// must list [Models]), of that tensor's block with the same offset and size: so each client's results are differences
// to the model, though each client has slots of its own. Where a value will be answered so, its writer keeps it without
// being asked.
//
// By the time the Block arrives, the peer may have put newer values. So that it still has the reference,
//
//	Want = epoch, slots of the other's stream, whose values are to be kept, for they predict the values that are put here
//	Kept = slots: from here on keepValues values before the latest are kept, until Seen says that they need not be
//	Seen = epoch, then pairs of a slot of the other's stream and how many of its values have come: values that are put here from
//	       now on are coded against the last of these or a later one; 0: the slot was evicted, and no value is coded against it any
//	       more
//
// A writer that keeps values puts no more than keepValues of them ahead of Seen; a value that is too fast for that
// travels by itself.

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
	from := s.owner.keptFor(epoch, id, slot.model)
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
