package cache

import (
	"bytes"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
)

// run takes the frames of the peer until the stream ends, and returns why it did.
func (s *store) run() error {
	defer close(s.dead)
	for {
		f, err := s.frames.Next()
		if err == nil {
			err = s.take(f)
		}
		if err != nil {
			s.stream.Reset(frame.ResetByFrames)
			s.memory.Give(s.reserved)
			if e := s.pipe.Wait(); e != nil {
				return e
			}
			return err
		}
	}
}

func (s *store) take(f frame.Frame) error {
	if s.schedule != nil {
		defer s.schedule()()
	}
	switch f.Kind {
	case frame.Declare:
		return s.declare(f.Slot, f.Body)
	case frame.Block:
		return s.put(f)
	case frame.Forget:
		return s.forget(f.Body)
	case frame.Evict:
		return s.evict(f.Body)
	case frame.Kept:
		return s.keep(f.Body)
	case frame.Seen: // once the values before it are decoded
		f.Body = bytes.Clone(f.Body)
		return s.pipe.Do(pipe.Item{Emit: func() error { return s.owner.handle(s, f) }})
	}
	return s.owner.handle(s, f)
}

// declare gives a slot its codec. A slot that stands for the same block as before keeps its copy: only its codec
// changes.
func (s *store) declare(id uint32, body []byte) error {
	d, err := frame.ParseDeclaration(body)
	if err != nil {
		return err
	}
	c, err := s.codecs.Get(d.Codec)
	if err != nil {
		return fmt.Errorf("%w: declare: %w", frame.ErrFrame, err)
	}
	slot := &storeSlot{model: modelOf(&d), text: d.Codec, name: coder.Name(c.String()), role: d.Role, limit: coder.MaxEncoded(c, &d) + reference.Overhead}
	if _, _, fills := codecs.FillOf(c); fills {
		slot.long = slot.limit
	}
	switch old, k := s.slots[id], keyOf(&d); {
	case old == nil:
		if err := s.account(k.slotCost(), 0); err != nil {
			return err
		}
		slot.copyOfSlot = &copyOfSlot{blockKey: k, id: id, epoch: s.epoch, copy: reference.NewCopy(k.size(), 0)}
		s.mu.Lock()
		s.copies[k] = slot.copyOfSlot
		s.mu.Unlock()
	case old.blockKey != k:
		return fmt.Errorf("%w: slot %d stands for another block already", frame.ErrFrame, id)
	default:
		slot.copyOfSlot = old.copyOfSlot
	}
	if slot.dec, err = reference.NewDecoder(c, d.DType, slot.copy, slot.copy); err != nil {
		return fmt.Errorf("%w: declare %s for %d %v: %w", frame.ErrFrame, d.Codec, d.N, d.DType, err)
	}
	s.slots[id] = slot
	return nil
}

// put takes a slot's next value, and owns the frame's body.
func (s *store) put(f frame.Frame) error {
	slot := s.slots[f.Slot]
	form, dec, coded, err := s.decoder(slot, f.Body)
	if err == nil {
		err = s.account(int64(slot.size()), 1)
	}
	if err != nil {
		s.config.Pool.Put(f.Body)
		return err
	}
	if s.pace != nil {
		s.pace(len(f.Body), slot.size())
	}
	s.last++
	id := s.last
	s.puts[id] = slot
	turn := slot.turns.Next()
	reserved := s.reserved
	s.reserved = 0
	e := &storeEntry{data: make([]byte, slot.size())}
	return s.pipe.Do(pipe.Item{
		Work: func() {
			turn.Begin()
			defer turn.End()
			begin := time.Now()
			if form == frame.FormShort && slot.long > 0 {
				err = s.lengthened(e.data, dec, coded, slot)
			} else if err = coder.Decode(e.data, form, dec, coded, slot.name); err == nil && form == frame.FormRaw {
				slot.copy.Set(e.data)
			}
			s.config.Metrics.Decoded(slot.name, slot.role, time.Since(begin))
		},
		Emit: func() error {
			if err == nil {
				s.store(id, e)
				s.came(slot.copyOfSlot)
			}
			return err
		},
		Done: func() {
			s.config.Pool.Put(f.Body)
			s.memory.Give(reserved)
		},
	})
}

// lengthened sets data from a Block of frame.FormShort.
func (s *store) lengthened(data []byte, dec codecs.Decoder, coded []byte, slot *storeSlot) error {
	head, err := reference.HeadLen(coded)
	if err != nil {
		return fmt.Errorf("%w: block of %s: %w", frame.ErrFrame, slot.name, err)
	}
	return coder.DecodeShort(data, dec, coded, head, slot.long, slot.name, s.config.Pool)
}

// decoder returns how a Block's body is decoded: its form, the decoder of coded forms, and its encoding.
func (s *store) decoder(slot *storeSlot, body []byte) (form byte, dec codecs.Decoder, coded []byte, err error) {
	switch {
	case len(body) == 0:
		return 0, nil, nil, fmt.Errorf("%w: value without a form", frame.ErrFrame)
	case body[0] == frame.FormReverse:
		dec, coded, err = s.reverse(slot, body)
		return frame.FormCoded, dec, coded, err
	}
	return body[0], slot.dec, body[1:], nil
}

// store lets Refs have a value.
func (s *store) store(id uint64, e *storeEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[id], s.stored = e, id
	if w := s.waits[id]; w != nil {
		close(w.there)
		delete(s.waits, id)
	}
}

// forget drops values, once all that were put before are there.
func (s *store) forget(body []byte) error {
	f := frame.Fields{B: body}
	var gone []uint64
	for len(f.B) > 0 {
		id := uint64(f.Int())
		slot := s.puts[id]
		if f.Short || slot == nil {
			return fmt.Errorf("%w: value %d is to be forgotten, and is not held", frame.ErrFrame, id)
		}
		delete(s.puts, id)
		gone = append(gone, id)
	}
	return s.pipe.Do(pipe.Item{Emit: func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, id := range gone {
			e := s.entries[id]
			delete(s.entries, id)
			if e.forgotten = true; e.lent == 0 {
				s.free(int64(len(e.data)), 1)
			}
		}
		return nil
	}})
}

// evict drops slots with their copies. Values that were put before are decoded all the same.
func (s *store) evict(body []byte) error {
	f := frame.Fields{B: body}
	var gone []*copyOfSlot
	var cost int64
	for len(f.B) > 0 {
		id := uint32(min(f.Int(), frame.MaxSlots))
		slot := s.slots[id]
		if f.Short || slot == nil {
			return fmt.Errorf("%w: slot %d is to be evicted, and was not declared", frame.ErrFrame, id)
		}
		delete(s.slots, id)
		gone = append(gone, slot.copyOfSlot)
		cost += slot.slotCost()
	}
	return s.pipe.Do(pipe.Item{Emit: func() error {
		for _, c := range gone {
			s.left(c)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free(cost, 0)
		return nil
	}})
}
