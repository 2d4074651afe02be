package cache

import (
	"bytes"
	"sync"

	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
)

// maxSlots bounds the slots of a writer.
const maxSlots = frame.MaxSlots / 4

// A writer is the value stream that this side has opened, and the values that it has put there. Peer.mu guards all
// fields but the first six, which do not change, and pipe, which submit guards.
type writer struct {
	config *Config
	name   string // of the peer
	memory memory.Allocator
	stream Stream
	epoch  uint64
	dead   chan struct{} // closed when the stream has ended
	pipe   *pipe.Pipe

	room     int64 // bytes that the peer grants; 0: it has not said so yet
	used     int64
	count    int    // values that the peer holds, or soon will: at most maxEntries
	last     uint64 // number of the last value
	slots    lru.Cache[blockKey, *writerSlot]
	numbers  map[uint32]*writerSlot // all slots, evicted ones too until the peer has let them go
	predicts map[predicted]int      // slots that keep values
	free     []uint32               // numbers that were given and are free again
	forget   []uint64               // numbers of values to be forgotten
	evict    []uint64               // numbers of slots to be evicted
	kept     []uint64               // numbers of slots whose values are kept from now on
	want     []uint64               // numbers of the peer's slots that predict the values put here

	index        index                     // of the values that are found by their content
	retired      lru.Cache[uint64, *entry] // such values that are no slot's latest any more, by number
	retiredBytes int64                     // of them

	seen    map[uint32]uint64 // values of the peer's slots that have come, where it keeps them
	crowded sync.Once         // logged that there is no room for all
	kick    chan struct{}     // wakes control
}

// newWriter returns the writer of a value stream to the peer of that name; share is the peer's part of the budget of
// senders.
func newWriter(c *Config, name string, share *memory.Share, stream Stream, epoch uint64) *writer {
	w := &writer{config: c, name: name, stream: stream, epoch: epoch, memory: memory.NewAllocator(c.Pool, c.Sending, share), dead: make(chan struct{}),
		numbers: map[uint32]*writerSlot{}, predicts: map[predicted]int{}, seen: map[uint32]uint64{}, kick: make(chan struct{}, 1)}
	w.pipe = pipe.New(c.Workers, pipeDepth, func(error) { stream.Reset(frame.ResetByFrames) })
	return w
}

// settle takes over the bytes that the peer has granted; 0: it has not said so yet. Peer.mu is held.
func (w *writer) settle(granted int64) {
	if granted > 0 {
		w.room = min(granted, w.config.Room)
	}
}

// entry returns the slot's last entry if that serves for v, else a new one; nil: there is no room. Peer.mu is held.
func (w *writer) entry(t frame.Tag, v *Put) (e *entry, fresh bool) {
	k := keyOf(&v.Decl)
	slot, known := w.slots.Use(k)
	if known {
		if old := slot.latest; bytes.Equal(old.raw, v.Data) && old.serves(t, v) {
			return old, false
		}
		if slot.ahead() {
			return nil, false
		}
	}
	need := int64(k.size())
	if !known {
		need += k.slotCost()
	}
	room := coder.FrameRoom(v.Choice.Codec, &v.Decl) + maxReverse + reference.Overhead
	reserved := memory.Footprint(room)
	if !w.makeRoom(need, slot) || !w.memory.Take(reserved) {
		return nil, false
	}
	w.used += need
	if !known {
		slot = &writerSlot{blockKey: k, model: modelOf(&v.Decl), id: w.number(), copy: reference.NewCopy(k.size(), 0)}
		w.numbers[slot.id] = slot
		w.slots.Put(k, slot)
	}
	slot.version++
	w.count++
	w.last++
	e = &entry{id: w.last, slot: slot, raw: bytes.Clone(v.Data), room: room, reserved: reserved, epoch: w.epoch, mayLose: v.mayLose()}
	if !e.mayLose && len(v.marks) > 0 {
		e.marks, e.name = v.marks, nameOf(v)
		w.index.add(e)
	}
	old := slot.latest
	slot.latest = e
	if old != nil && old.refs == 0 {
		w.retire(old)
	}
	return e, true
}

// number returns a number for a new slot.
func (w *writer) number() uint32 {
	if n := len(w.free); n > 0 {
		id := w.free[n-1]
		w.free = w.free[:n-1]
		return id
	}
	return uint32(len(w.numbers)) // all below are taken
}

// makeRoom evicts the slots that were used least recently, but not spared, until there is room for one more value, and
// for need bytes.
func (w *writer) makeRoom(need int64, spared *writerSlot) bool {
	holds := func() bool { return w.used+need <= w.room && w.count < maxEntries }
	fits := func() bool { return holds() && len(w.numbers) < maxSlots }
	if w.expire(holds); fits() {
		return true
	}
	for k, slot := range w.slots.FromOldest() {
		if slot == spared || slot.latest.refs > 0 {
			continue
		}
		w.slots.Delete(k)
		if slot.leaving = slot.keeps; !slot.keeps {
			w.release(slot)
		}
		w.evict = append(w.evict, uint64(slot.id))
		w.used -= slot.slotCost()
		w.drop(slot.latest)
		w.config.Metrics.SharedValue("evicted")
		w.crowded.Do(func() {
			w.config.Log.Warn("there is no room for all shared values: the least recently used ones are sent whole again; raise references, at both sites", "peer", w.name, "room", w.room)
		})
		if fits() {
			return true
		}
	}
	return false
}

// release lets another block have a slot's number.
func (w *writer) release(slot *writerSlot) {
	delete(w.numbers, slot.id)
	w.free = append(w.free, slot.id)
}

// drop has the peer forget a value. Its memory here is free at once; the next value follows the Forget.
func (w *writer) drop(e *entry) {
	w.index.remove(e)
	for p := range e.followers { // they must not keep its bytes in memory
		p.move(place{})
	}
	w.forget = append(w.forget, e.id)
	w.used -= int64(e.slot.size())
	w.count--
	w.wake()
}

// wake wakes the goroutine that writes control frames.
func (w *writer) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// unref takes note that one reason less is left for the peer to hold a value. Peer.mu is held.
func (w *writer) unref(e *entry) {
	if e.refs--; e.refs > 0 || e.slot.latest == e {
		return
	}
	w.retire(e)
}

// maxRetired bounds the values that are no slot's latest.
const maxRetired = 1 << 13

// retire is for an entry that is no slot's latest any more, and to which no Ref is under way: the peer keeps it while
// there is room, if it is found by its content. Peer.mu is held.
func (w *writer) retire(e *entry) {
	if _, there := w.retired.Peek(e.id); there {
		return
	}
	if len(e.marks) == 0 {
		w.drop(e)
		return
	}
	w.retired.Put(e.id, e)
	w.retiredBytes += int64(len(e.raw))
	w.expire(func() bool { return w.retiredBytes <= w.room/2 && w.retired.Len() <= maxRetired })
}

// expire drops the retired values that were used least recently, until enough.
func (w *writer) expire(enough func() bool) {
	if enough() {
		return
	}
	for id, e := range w.retired.FromOldest() {
		if e.refs > 0 {
			continue
		}
		w.retired.Delete(id)
		w.retiredBytes -= int64(len(e.raw))
		w.drop(e)
		if enough() {
			return
		}
	}
}
