package proxy

import (
	"bytes"
	"container/list"
	"errors"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"slices"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A valueStream is the one that this side has opened, and what it has put there.
type valueStream struct {
	sharer *sharer
	lender mem.Allocator
	stream Stream
	epoch  uint64
	pipe   *pipe.Pipe
	room   int64 // what the peer gives; 0: it has not said so yet

	used     int64
	last     uint64 // number of the last value
	slots    map[valueKey]*list.Element
	recent   list.List                   // of *putSlot, the one used most recently first
	numbers  map[uint32]*putSlot         // all slots, and those that were evicted but not let go by the peer
	predicts map[predicted]int           // slots that keep values
	free     []uint32                    // numbers that were given and are free again
	forget   []uint64                    // numbers of values to be forgotten
	evict    []uint64                    // numbers of slots to be evicted
	kept     []uint64                    // numbers of slots whose values are kept from now on
	want     []uint64                    // numbers of the peer's slots that predict what is put here
	seen     map[uint32]uint64           // values of the peer's slots that have come, where it keeps them
	lent     map[*connection][]*putValue // Refs that were not delivered yet, in order
	crowded  sync.Once                   // said that there is no room for all
	kick     chan struct{}
	dead     chan struct{}
}

// A putSlot is a block of a tensor whose last value the peer holds.
type putSlot struct {
	valueKey
	id    uint32
	text  string // of the codec
	enc   codecs.Encoder
	copy  *reference.Copy
	held  bool // the peer has a value of it
	lossy int  // values that may have lost something since the last that did not

	// See opposite.go.
	version  uint64 // of the last value; 0: none
	put      bool   // the peer will know the slot before what it is told from now on
	keeps    bool   // earlier values are kept
	leaving  bool   // it was evicted
	seen     uint64 // version that the peer has seen
	opposite oppositeEncoder
	answered uint64 // of the peer's values of the block: how many had come when the last value was put here
	broken   bool   // enc failed in a way that is not allowed: its values travel raw. In turn
	turn     chan struct{}
	latest   *putValue
}

// A putValue is a value that the peer holds, or soon will.
type putValue struct {
	id   uint64
	slot *putSlot
	raw  []byte // as it was before it was coded; nobody changes it
	refs int    // that were not delivered
	lost bool   // the codec may have lost something. In turn of submit

	served []*connection // that have referred to it, if it may have lost something; else at most one of them
	room   int           // bytes that its frame is made in
	paid   int           // of the budget for them, until it has been sent
}

// put has the peer hold the next value of a block and returns what to refer to it by. fresh: it was not held yet. !ok: it must
// travel by itself.
func (s *sharer) put(c *connection, b *sendBlock) (r frame.ValueRef, fresh, ok bool) {
	s.submit.Lock()
	defer s.submit.Unlock()
	s.mu.Lock()
	v := s.ready()
	if v == nil || c.farEnded {
		s.mu.Unlock()
		return r, false, false
	}
	value, fresh := v.value(c, b)
	var from *heldCopy
	if fresh {
		from = s.predictor(v, value.slot)
	}
	if value == nil {
		s.mu.Unlock()
		s.shared.Metrics.fellBack(tensor.NoMemory)
		return r, false, false
	}
	value.refs++
	if fresh || value.lost {
		value.served = append(value.served, c)
	}
	v.lent[c] = append(v.lent[c], value)
	s.refers[c.tag] = c
	s.mu.Unlock()
	if !fresh {
		s.shared.Metrics.sharedValue("again")
	} else {
		if err := v.send(value, b, from); err != nil {
			return r, false, false // the stream is lost, and with it the value
		}
		s.mu.Lock()
		value.slot.put = true
		s.mu.Unlock()
	}
	return frame.ValueRef{Epoch: v.epoch, ID: value.id, Size: len(b.data)}, fresh, true
}

// serves reports whether c may refer to a value that is equal to what it has to send. One that has lost something is good for
// those that may lose something, once each: who sends the same again has the next difference sent, so that what arrives comes
// closer.
func (value *putValue) serves(c *connection, choice policy.Choice) bool {
	return !value.lost || codecs.Lossy(choice.Codec) && !slices.Contains(value.served, c)
}

// value returns the slot's last value if that serves for b, else a new one; nil: there is no room. s.mu is held.
func (v *valueStream) value(c *connection, b *sendBlock) (value *putValue, fresh bool) {
	k := valueKeyOf(&b.decl)
	e := v.slots[k]
	if e != nil {
		v.recent.MoveToFront(e)
		if old := e.Value.(*putSlot).latest; bytes.Equal(old.raw, b.data) && old.serves(c, b.choice) {
			return old, false
		}
	}
	if e != nil && e.Value.(*putSlot).ahead() {
		return nil, false
	}
	need := int64(k.size())
	if e == nil {
		need += k.slotCost()
	}
	room := frameRoom(&b.decl, b.choice.Codec) + maxOpposite + reference.Overhead
	paid := mem.Footprint(room)
	if !v.makeRoom(need, e) || !v.lender.Take(paid) {
		return nil, false
	}
	v.used += need
	if e == nil {
		slot := &putSlot{valueKey: k, id: v.number(), copy: reference.NewCopy(k.size(), 0)}
		v.numbers[slot.id] = slot
		e = v.recent.PushFront(slot)
		v.slots[k] = e
	}
	slot := e.Value.(*putSlot)
	slot.version++
	v.last++
	value = &putValue{id: v.last, slot: slot, raw: bytes.Clone(b.data), room: room, paid: paid}
	old := slot.latest
	slot.latest = value
	if old != nil && old.refs == 0 {
		v.drop(old)
	}
	return value, true
}

// number returns a number for a new slot.
func (v *valueStream) number() uint32 {
	if n := len(v.free); n > 0 {
		id := v.free[n-1]
		v.free = v.free[:n-1]
		return id
	}
	return uint32(len(v.numbers)) // all below are taken
}

// makeRoom evicts the slots that were used least recently, but not spared, until there is room for need bytes.
func (v *valueStream) makeRoom(need int64, spared *list.Element) bool {
	for e := v.recent.Back(); e != nil && (v.used+need > v.room || len(v.numbers) >= maxSendSlots); {
		before := e.Prev()
		if slot := e.Value.(*putSlot); e != spared && slot.latest.refs == 0 {
			v.recent.Remove(e)
			delete(v.slots, slot.valueKey)
			if slot.leaving = slot.keeps; !slot.keeps {
				v.release(slot)
			}
			v.evict = append(v.evict, uint64(slot.id))
			v.used -= slot.slotCost()
			v.drop(slot.latest)
			v.sharer.shared.Metrics.sharedValue("evicted")
			v.crowded.Do(func() {
				v.sharer.shared.Log.Warn("there is no room for all values that are shared: those used least recently are sent whole again; raise references, at both sites", "peer", v.sharer.peer, "room", v.room)
			})
		}
		e = before
	}
	return v.used+need <= v.room && len(v.numbers) < maxSendSlots
}

// drop has the peer forget a value. Its memory here is free at once; what is put next comes behind the Forget.
func (v *valueStream) drop(value *putValue) {
	v.forget = append(v.forget, value.id)
	v.used -= int64(value.slot.size())
	v.kicked()
}

// kicked has told what there is to tell.
func (v *valueStream) kicked() {
	select {
	case v.kick <- struct{}{}:
	default:
	}
}

// send puts a value on the stream, as a difference to from, if that is not nil. submit is held.
func (v *valueStream) send(value *putValue, b *sendBlock, from *heldCopy) error {
	if err := v.flush(); err != nil { // the room that was made must be free there first
		v.lender.Give(value.paid)
		return err
	}
	slot := value.slot
	c := b.choice.Codec
	if value.lost = codecs.Lossy(c); value.lost {
		slot.lossy++
		if due := b.choice.Flush > 0 && slot.lossy >= b.choice.Flush; due || !slot.held && from == nil {
			c, value.lost = v.sharer.shared.lossless, false // an exact one is due, or there is nothing to take a difference to yet
		}
	}
	if !value.lost {
		slot.lossy = 0
	}
	how := "whole"
	if slot.held {
		how = "difference"
	}
	if from != nil {
		how = "opposite"
	}
	slot.held = true
	v.sharer.shared.Metrics.sharedValue(how)
	var declare []byte
	if text := c.String(); text != slot.text {
		enc, err := reference.NewEncoder(c, slot.dtype, slot.copy, slot.copy)
		if err != nil { // the codec takes no such block, as the lossless one does
			c, text = v.sharer.shared.lossless, v.sharer.shared.lossless.String()
			if enc, err = reference.NewEncoder(c, slot.dtype, slot.copy, slot.copy); err != nil {
				panic(fmt.Sprintf("proxy: the lossless codec takes no block of %d %v: %v", slot.n, slot.dtype, err))
			}
		}
		d := b.decl
		d.Codec = text
		body := d.Append(nil)
		declare = append(frame.AppendHeader(nil, frame.Declare, slot.id, len(body)), body...)
		slot.enc, slot.text, slot.opposite.enc = enc, text, nil
	}
	enc, text, role, record := slot.enc, name(slot.text), b.role, b.record
	if from != nil {
		var err error
		if enc, err = slot.against(c, from); err != nil {
			enc, from = slot.enc, nil
		}
	}
	prev, done := slot.turn, make(chan struct{})
	slot.turn = done
	var frame, buf []byte
	return v.pipe.Do(pipe.Item{
		Work: func() {
			if prev != nil {
				<-prev
			}
			defer close(done)
			begin := time.Now()
			buf, frame = v.sharer.encode(slot, enc, from, value)
			took := time.Since(begin)
			v.sharer.shared.Metrics.encoded(text, role, took)
			if how != "whole" { // a first value says nothing of the next
				record.Gain.Saw(len(value.raw), len(frame), took)
			}
		},
		Emit: func() error {
			_, err := v.stream.Write(declare)
			if err == nil {
				_, err = v.stream.Write(frame)
			}
			wire := len(declare) + len(frame)
			record.Sent(0, wire)
			v.sharer.shared.Metrics.sent(text, role, 0, wire)
			return err
		},
		Done: func() {
			v.sharer.shared.buffers.Put(buf)
			v.lender.Give(value.paid)
		},
	})
}

// encode makes a value's frame. Whatever goes wrong with the codec, it travels: raw.
func (s *sharer) encode(slot *putSlot, enc codecs.Encoder, from *heldCopy, value *putValue) (buf, whole []byte) {
	raw := value.raw
	buf = s.shared.buffers.Get(value.room)[:frame.MaxHeader]
	out := append(buf, frame.FormCoded)
	if from != nil {
		out = from.appendOpposite(buf)
	}
	out, err := slot.append(enc, out, raw)
	if err == nil {
		return buf, frame.Front(out, frame.Block, slot.id)
	}
	if !errors.Is(err, codecs.ErrUnsuited) {
		s.shared.Log.Error("codec failed; its value travels raw", "codec", slot.text, "err", err)
	}
	out = append(append(buf, frame.FormRaw), raw...)
	slot.copy.Set(raw)
	return buf, frame.Front(out, frame.Block, slot.id)
}

// append encodes src. A panic in a codec is an error of its slot.
func (slot *putSlot) append(enc codecs.Encoder, dst, src []byte) (out []byte, err error) {
	if slot.broken {
		return nil, codecs.ErrUnsuited
	}
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v", p)
		}
		slot.broken = err != nil && !errors.Is(err, codecs.ErrUnsuited)
	}()
	return enc.Append(dst, src)
}
