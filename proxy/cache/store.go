package cache

import (
	"context"
	"fmt"
	"sync/atomic"

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
	lingers *atomic.Int64 // bytes of values of lost streams that are being delivered: the Peer's
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
	lost    bool                  // the stream is: lent is part of lingers
}

// An entryWait is closed when the value is there.
type entryWait struct {
	there chan struct{}
	n     int // goroutines that wait
}

// A storeSlot is a slot of the value stream, as last declared. Its fields are the reader's, but for the codecs' state,
// which changes in turn.
type storeSlot struct {
	*copyOfSlot
	model   blockKey // of the values put there that predict this slot's
	text    string   // of the codec
	name    string   // of the codec
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

// maxEntries bounds the values that a peer may have put here, which may be short. All versions must have the same: a
// writer puts no more.
const maxEntries = 1 << 18

// An owner is the peer that has a store, for frames and values that concern the writer beside it.
type owner interface {
	// handle takes a control frame about the values that this side has put, which has come on the stream of s.
	handle(s *store, f frame.Frame) error
	// keptFor returns the values of a slot of the writer that are kept for the peer to code a block of key k against,
	// or nil.
	keptFor(epoch uint64, id uint32, k blockKey) *reference.Copy
	// see has the peer told how many values of a slot of s have come, or that the slot is gone here too (0).
	see(s *store, id uint32, n uint64)
}

// newStore returns the store of a value stream; share is the peer's part of the budget of receivers.
func newStore(c *Config, o owner, lingers *atomic.Int64, share *memory.Share, stream Stream, epoch uint64) *store {
	s := &store{config: c, owner: o, lingers: lingers, stream: stream, epoch: epoch, room: c.Room, slots: map[uint32]*storeSlot{}, puts: map[uint64]*storeSlot{},
		copies: map[blockKey]*copyOfSlot{}, codecs: coder.Codecs{New: c.Codecs}, entries: map[uint64]*storeEntry{}, waits: map[uint64]*entryWait{},
		dead: make(chan struct{})}
	s.memory = memory.NewAllocator(c.Pool, c.Receiving, share)
	s.frames = frame.Reader{Source: stream, Limit: s.limit, Reserve: s.reserve, Pool: c.Pool, Counts: c.Frames}
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

// reserve takes memory for a body that is to be read. A peer has one value stream, on which its connections wait: so
// where there is no memory the store still reads one frame at a time.
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

// account takes n bytes of the room, for a value or for a slot. Values that the peer has given up may still have to be
// decoded, after the values before them.
func (s *store) account(n int64, values int) error {
	for waited := false; ; waited = true {
		s.mu.Lock()
		used, count := s.used+n, s.count+values
		fits := used <= s.room && count <= maxEntries
		if fits {
			s.used, s.count = used, count
		}
		s.mu.Unlock()
		switch {
		case fits:
			return nil
		case waited:
			return fmt.Errorf("%w: %d values with their slots have %d bytes, where %d and %d have room", frame.ErrFrame, count, used, maxEntries, s.room)
		}
		if err := s.pipe.Wait(); err != nil {
			return err
		}
	}
}

// free gives back the bytes that account has taken. mu is held.
func (s *store) free(n int64, values int) {
	s.used -= n
	s.count -= values
}
