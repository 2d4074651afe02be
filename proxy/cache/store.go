package cache

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/tensor"
)

// A store holds the values that a peer has put here, for as long as their stream lives.
type store struct {
	config  *Config
	owner   owner
	stream  Stream
	epoch   uint64
	room    int64         // bytes that the peer may have here
	granted int64         // bytes of values that the peer has room for; guarded by Peer.mu
	dead    chan struct{} // closed when no value comes any more

	// The reader's.
	memory   memory.Allocator
	reserved int // bytes of the budget for the frame that is being read
	frames   frame.Reader
	pipe     *pipe.Pipe
	slots    map[uint32]*storeSlot
	codecs   coder.Codecs
	puts     map[uint64]*storeSlot      // by the numbers of values that are not forgotten
	last     uint64                     // number of the last value that was read
	pace     func(encoded, decoded int) // nil: values are decoded at once
	schedule func() (end func())        // nil: frames are taken at once

	mu      storeLock                // guards all below
	copies  map[blockKey]*copyOfSlot // of the slots' blocks
	used    int64
	count   int // values that used counts
	entries map[uint64]*storeEntry
	stored  uint64                // number of the last value that is or was among them
	waits   map[uint64]*entryWait // by number
	lent    int64                 // bytes of values that are being delivered
	lost    bool                  // the stream is: the Peer counts lent
}

// An entryWait is closed when the value is there.
type entryWait struct {
	there chan struct{}
	n     int // goroutines that wait
}

// A storeSlot is a slot of the value stream, as last declared. Its fields are the reader's, but for the codecs' state, which changes
// in turn.
type storeSlot struct {
	*copyOfSlot
	text    string // of the codec
	name    string // of the codec
	role    tensor.Role
	dec     codecs.Decoder
	reverse reverseDecoder
	limit   int // bytes of an encoding, at most
	long    int // the same that a short form is made longer in; 0: no value may have that form
}

// A storeEntry is one value. store.mu guards all but data, which nobody changes.
type storeEntry struct {
	data      []byte
	lent      int // deliveries under way
	forgotten bool
}

// maxEntries bounds the values that a peer may have put here, which may be short.
const maxEntries = 1 << 18

// An owner is the peer that has a store, for frames and values that concern the writer beside it.
type owner interface {
	// handle takes a control frame about the values that this side has put, which has come on the stream of s.
	handle(s *store, f frame.Frame) error
	// keptFor returns the values of a slot of the writer that are kept for the peer to code a block of key k against, or nil.
	keptFor(epoch uint64, id uint32, k blockKey) *reference.Copy
	// see has the peer told how many values of a slot of s have come, or that the slot is gone here too (0).
	see(s *store, id uint32, n uint64)
	// linger counts n more bytes of values of lost streams that are being delivered.
	linger(n int64)
}

// newStore returns the store of a value stream; share is the peer's part of the budget of receivers.
func newStore(c *Config, o owner, share *memory.Share, stream Stream, epoch uint64) *store {
	s := &store{config: c, owner: o, stream: stream, epoch: epoch, room: c.Room, slots: map[uint32]*storeSlot{}, puts: map[uint64]*storeSlot{},
		copies: map[blockKey]*copyOfSlot{}, codecs: coder.Codecs{New: c.Codecs}, entries: map[uint64]*storeEntry{}, waits: map[uint64]*entryWait{},
		dead: make(chan struct{})}
	s.memory = memory.NewAllocator(c.Pool, c.Receiving, share)
	s.frames = frame.Reader{Source: stream, Limit: s.limit, Reserve: s.reserve, Pool: c.Pool}
	s.pipe = pipe.New(c.Workers, pipeDepth, func(error) { stream.Reset(frame.ResetByFrames) })
	return s
}

// wait has the store wait for the turns of a peer and for its allowance, until ctx ends.
func (s *store) wait(ctx context.Context, peer string) {
	if s.config.Pace != nil {
		s.pace = func(encoded, decoded int) { s.config.Pace(peer, encoded, decoded, ctx.Done()) }
	}
	if s.config.Schedule != nil {
		s.schedule = s.config.Schedule(peer)
	}
}

// limit returns how long the body of a frame may be, before memory is taken for it.
func (s *store) limit(k frame.Kind, id uint32) (int, error) {
	switch k {
	case frame.Declare, frame.Room, frame.Forget, frame.Evict, frame.Delivered, frame.Want, frame.Kept, frame.Seen:
		return frame.MaxSmall, nil
	case frame.Block:
		if slot := s.slots[id]; slot != nil {
			return 1 + maxReverse + slot.limit, nil
		}
		return 0, fmt.Errorf("%w: slot %d was not declared", frame.ErrFrame, id)
	}
	return 0, fmt.Errorf("%w: %v on a value stream", frame.ErrFrame, k)
}

// reserve takes memory for a body that is to be read. A peer has one value stream, on which its connections wait: so where there is
// no memory the store still reads one frame at a time.
func (s *store) reserve(_ frame.Kind, _ uint32, n int) error {
	need := memory.Footprint(n)
	if !s.memory.Take(need) {
		if err := s.pipe.Wait(); err != nil {
			return err
		}
		if !s.memory.Take(need) {
			need = 0
		}
	}
	s.reserved = need
	return nil
}

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

// declare gives a slot its codec. A slot that stands for the same block as before keeps its copy: only its codec changes.
func (s *store) declare(id uint32, body []byte) error {
	d, err := frame.ParseDeclaration(body)
	if err != nil {
		return err
	}
	c, err := s.codecs.Get(d.Codec)
	if err != nil {
		return fmt.Errorf("%w: declare: %w", frame.ErrFrame, err)
	}
	slot := &storeSlot{text: d.Codec, name: coder.Name(c.String()), role: d.Role, limit: coder.MaxEncoded(c, &d) + reference.Overhead}
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
