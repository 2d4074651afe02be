package send

import (
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// A slot is one block's place in a tensor, with the encoder that carries its state from step to step. Codecs without
// state share slots between all blocks of a shape, in a few lanes, so that several cores can be at blocks of the same
// shape.
type slot struct {
	coder.Slot
	id       uint32
	enc      codecs.Encoder
	summed   *coder.Summed     // enc, if blocks keep their CRC-32; else nil
	external *external         // enc, if the residual comes with the block; else nil
	lock     sync.Locker       // held while enc changes the residual, which others may use too; nil: enc has none
	control  *feedback.Control // of the block, guarded by lock; nil: enc has no feedback, or the residual comes with the block
	residual []float32         // the block's part of it, if enc has feedback
	declared bool
	encoded  int    // blocks so far
	group    uint64 // slots.group when a block was given the slot last
	zeros    int    // blocks in a row that were nearly zero, and travelled exactly without the residual; set by the chooser
}

const (
	// maxSlots bounds the slots that a sender declares: 64 k elements a slot make 4 GiB of tensors. Beyond it the slot
	// that was used least recently is declared anew.
	maxSlots = frame.MaxSlots / 4
	// lanes is how many blocks of one shape may be encoded at a time.
	lanes = 4
	// maxVariable bounds the slots of blocks of variable length. The messages of sparse tensors have other lengths each
	// time, few of which come again, and encoders may take memory in proportion.
	maxVariable = 64
)

// slots finds slots by their purpose. A block has its slot from its begin on, and the slot's number goes to the peer
// once the block's group is whole. So the slots of the present group keep their numbers, beyond any bound: another slot
// would be declared under the number before the block comes.
type slots struct {
	common   lru.Cache[slotKey, *slot]
	variable lru.Cache[slotKey, *slot] // of blocks of variable length, in which lanes are one
	next     uint32                    // number that no slot has had
	free     []uint32                  // numbers of slots that are gone
	lane     int
	group    uint64 // groups so far
}

type slotKey struct {
	frame.Declaration
	lane     int
	external bool
	summed   bool
}

// A slotRequest says which slot a block needs. Its encoder keeps nothing of a tensor unless decl.Key is set.
type slotRequest struct {
	decl     frame.Declaration
	codec    codecs.Codec
	feedback bool
	lock     sync.Locker // of residual; nil: the codec loses nothing, or the residual comes with the block
	residual []float32
	control  *feedback.Control // with residual
	variable bool              // the block's length differs from message to message
	summed   bool              // blocks keep their CRC-32; not if the residual comes with the block
}

// get returns the slot for a block.
func (s *slots) get(q slotRequest) (*slot, error) {
	k := slotKey{Declaration: q.decl, external: q.lock == nil && q.feedback, summed: q.summed}
	table := &s.common
	if q.variable {
		table = &s.variable
	} else if q.decl.Key == 0 {
		s.lane = (s.lane + 1) % lanes
		k.lane = s.lane
	}
	old, found := table.Use(k)
	if found && old.lock == q.lock {
		old.group = s.group
		return old, nil
	}
	made, err := newSlot(q)
	if err != nil {
		return nil, err
	}
	switch {
	case found: // its tensor was forgotten: the codec begins anew at both ends
		made.id, made.Turns = old.id, old.Turns
	case q.variable:
		made.id = s.number(table, maxVariable)
	default:
		made.id = s.number(table, maxSlots)
	}
	made.group = s.group
	table.Put(k, made)
	return made, nil
}

// number returns a number for a new slot of a table, which is to have at most limit slots. The slots that were used
// least recently make room.
func (s *slots) number(table *lru.Cache[slotKey, *slot], limit int) uint32 {
	for table.Len() >= limit {
		key, oldest, _ := table.Oldest()
		if oldest.group == s.group {
			break
		}
		table.Delete(key)
		s.free = append(s.free, oldest.id)
	}
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	s.next++
	return s.next - 1
}

// drop drops the slots whose lock is gone, but for the slots of the present group.
func (s *slots) drop(gone func(sync.Locker) bool) {
	for _, table := range [...]*lru.Cache[slotKey, *slot]{&s.common, &s.variable} {
		for key, x := range table.FromOldest() {
			if x.lock != nil && x.group != s.group && gone(x.lock) {
				table.Delete(key)
				s.free = append(s.free, x.id)
			}
		}
	}
}

func newSlot(q slotRequest) (*slot, error) {
	s := &slot{lock: q.lock}
	var err error
	switch {
	case q.feedback && q.lock != nil:
		s.residual, s.control = q.residual, q.control
		s.enc, err = feedback.NewControlled(q.codec, q.decl.DType, q.residual, q.control)
	case q.feedback:
		s.external = new(external)
		s.enc = s.external
		s.external.enc, err = feedback.New(q.codec, q.decl.DType, q.decl.N)
	default:
		s.enc, err = q.codec.NewEncoder(q.decl.DType, q.decl.N)
	}
	if err == nil && q.summed {
		s.summed = &coder.Summed{Encoder: s.enc, DType: q.decl.DType, Residual: s.residual}
		s.summed.Decoder, err = q.codec.NewDecoder(q.decl.DType, q.decl.N)
		s.enc = s.summed
	}
	return s, err
}

// An external encodes blocks whose residual comes with them.
type external struct {
	enc      *feedback.Encoder
	residual []float32 // of the block whose turn it is
}

func (x *external) Append(dst, src []byte) ([]byte, error) { return x.enc.Append(dst, src, x.residual) }
