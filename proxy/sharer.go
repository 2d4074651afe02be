package proxy

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/tensor"
)

// A sharer is one peer's values: those that this proxy has put there, and the holder of those that the peer has put here.
type sharer struct {
	shared *Proxy
	peer   string

	sends, received share        // of its connections in the two budgets
	lingers         atomic.Int64 // bytes of values of lost streams that are being delivered

	submit sync.Mutex // who puts something on the stream, in the order of its numbers

	mu     sync.Mutex
	held   *holder // nil: the peer has opened no value stream
	out    *valueStream
	epoch  uint64 // of the last value stream
	opened time.Time
	refers map[tag]*connection // that carry Refs which the peer may not have delivered yet
	told   map[tag]int         // what is to be told of the peer's values: Refs delivered, or ended
}

const ended = -1 // in sharer.told: the connection has ended here

// A valueStream is the one that this side has opened, and what it has put there.
type valueStream struct {
	sharer *sharer
	lender lender
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
	kick     chan struct{}
	dead     chan struct{}
}

// A putSlot is a block of a tensor whose last value the peer holds.
type putSlot struct {
	valueKey
	id     uint32
	text   string // of the codec
	enc    codecs.Encoder
	copy   *reference.Copy
	held   bool // the peer has a value of it
	values int  // that were put, of those that may lose something since the last exact one

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
	room int    // bytes that its frame is made in
	paid int    // of the budget for them, until it has been sent
}

// valueStreamEvery is how long a lost value stream is not opened again.
const valueStreamEvery = time.Second

// sharerOf returns the values shared with a peer.
func (p *Proxy) sharerOf(peer string) *sharer {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sharers[peer]
	if s == nil {
		s = &sharer{shared: p, peer: peer, told: map[tag]int{}, refers: map[tag]*connection{}}
		p.sharers[peer] = s
	}
	return s
}

// ready returns the value stream, or nil and has it opened. s.mu is held.
func (s *sharer) ready() *valueStream {
	if s.out == nil && time.Since(s.opened) > valueStreamEvery && s.shared.opening.Err() == nil {
		s.opened = time.Now()
		s.epoch++
		go s.open(s.epoch)
	}
	if s.out == nil || s.out.room == 0 {
		return nil
	}
	return s.out
}

// open opens the value stream, and returns when it has ended.
func (s *sharer) open(epoch uint64) {
	stream, err := s.shared.Open(s.shared.opening, s.peer, binary.AppendUvarint([]byte{openingValues}, epoch))
	if err != nil {
		s.shared.Log.Warn("no values are shared with the peer for now", "peer", s.peer, "err", err)
		return
	}
	v := &valueStream{sharer: s, lender: s.shared.lenderOf(s.shared.budget, &s.sends), stream: stream, epoch: epoch, slots: map[valueKey]*list.Element{}, numbers: map[uint32]*putSlot{}, predicts: map[predicted]int{}, lent: map[*connection][]*putValue{},
		seen: map[uint32]uint64{}, kick: make(chan struct{}, 1), dead: make(chan struct{})}
	v.pipe = pipe.New(s.shared.pool, pipeDepth, func(error) { stream.Reset(resetByFrames) })
	room := AppendFrame(nil, Frame{Kind: Room, Body: binary.AppendUvarint(nil, uint64(s.shared.Values))})
	if _, err := stream.Write(room); err != nil {
		stream.Reset(resetByFrames)
		return
	}
	s.mu.Lock()
	s.out = v
	v.settle()
	s.mu.Unlock()
	v.kicked()
	go v.tell()
	for err == nil { // the peer writes nothing here: what comes is the end
		_, err = stream.ReadChunk()
	}
	stream.Reset(resetByFrames)
	s.mu.Lock()
	if s.out == v {
		s.out = nil
		clear(s.refers)
	}
	s.mu.Unlock()
	close(v.dead)
	v.pipe.Wait()
	s.shared.Log.Info("shared values are lost; the next are put whole", "peer", s.peer, "err", err)
}

// settle takes over what the peer has said of its room. s.mu is held.
func (v *valueStream) settle() {
	if h := v.sharer.held; h != nil && h.granted > 0 {
		v.room = min(h.granted, v.sharer.shared.Values)
	}
}

// put has the peer hold the next value of a block and returns what to refer to it by. fresh: it was not held yet. !ok: it must
// travel by itself.
func (s *sharer) put(c *connection, b *sendBlock) (r ref, fresh, ok bool) {
	s.submit.Lock()
	defer s.submit.Unlock()
	s.mu.Lock()
	v := s.ready()
	if v == nil || c.farEnded {
		s.mu.Unlock()
		return r, false, false
	}
	value, fresh := v.value(b)
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
	return ref{v.epoch, value.id, len(b.data)}, fresh, true
}

// value returns the slot's last value if b is equal to it, else a new one; nil: there is no room. s.mu is held.
func (v *valueStream) value(b *sendBlock) (value *putValue, fresh bool) {
	k := b.decl.valueKey()
	e := v.slots[k]
	if e != nil {
		v.recent.MoveToFront(e)
		if old := e.Value.(*putSlot).latest; bytes.Equal(old.raw, b.data) {
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
	room := b.decl.frameRoom(b.choice.Codec) + maxOpposite + reference.Overhead
	paid := footprint(room)
	if !v.makeRoom(need, e) || !v.lender.take(paid) {
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
		v.lender.give(value.paid)
		return err
	}
	slot := value.slot
	c := b.choice.Codec
	if slot.values++; codecs.Lossy(c) && (!slot.held && from == nil || slot.values == b.choice.Flush) {
		c, slot.values = v.sharer.shared.lossless, 0 // there is nothing to take a difference to yet, or an exact one is due
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
		d.codec = text
		body := d.append(nil)
		declare = append(appendHeader(nil, Declare, slot.id, len(body)), body...)
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
				record.gain.Saw(len(value.raw), len(frame), took)
			}
		},
		Emit: func() error {
			_, err := v.stream.Write(declare)
			if err == nil {
				_, err = v.stream.Write(frame)
			}
			wire := len(declare) + len(frame)
			record.sent(0, wire)
			v.sharer.shared.Metrics.sent(text, role, 0, wire)
			return err
		},
		Done: func() {
			v.sharer.shared.buffers.put(buf)
			v.lender.give(value.paid)
		},
	})
}

// encode makes a value's frame. Whatever goes wrong with the codec, it travels: raw.
func (s *sharer) encode(slot *putSlot, enc codecs.Encoder, from *heldCopy, value *putValue) (buf, frame []byte) {
	raw := value.raw
	buf = s.shared.buffers.get(value.room)[:maxHeader]
	out := append(buf, formCoded)
	if from != nil {
		out = from.appendOpposite(buf)
	}
	out, err := slot.append(enc, out, raw)
	if err == nil {
		return buf, frontHeader(out, Block, slot.id)
	}
	if !errors.Is(err, codecs.ErrUnsuited) {
		s.shared.Log.Error("codec failed; its value travels raw", "codec", slot.text, "err", err)
	}
	out = append(append(buf, formRaw), raw...)
	slot.copy.Set(raw)
	return buf, frontHeader(out, Block, slot.id)
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

// tell writes what there is to tell until the stream is lost.
func (v *valueStream) tell() {
	for {
		select {
		case <-v.kick:
		case <-v.dead:
			return
		}
		v.sharer.submit.Lock()
		v.flush()
		v.sharer.submit.Unlock()
	}
}

// flush submits what there is to tell. submit is held.
func (v *valueStream) flush() error {
	s := v.sharer
	s.mu.Lock()
	var t teller
	t.numbers(Forget, v.forget)
	t.numbers(Kept, v.kept) // before the same slot is evicted
	t.numbers(Evict, v.evict)
	for tag, n := range s.told {
		t.add(Delivered, binary.AppendUvarint(tag.append(t.scratch[:0]), uint64(max(n, 0))))
	}
	if s.held != nil {
		t.prefix = binary.AppendUvarint(nil, s.held.epoch)
		t.numbers(Want, v.want)
		for id, n := range v.seen {
			t.add(Seen, binary.AppendUvarint(binary.AppendUvarint(t.scratch[:0], uint64(id)), n))
		}
	}
	clear(s.told)
	clear(v.seen)
	v.forget, v.kept, v.evict, v.want = v.forget[:0], v.kept[:0], v.evict[:0], v.want[:0]
	s.mu.Unlock()
	out := t.frames()
	if len(out) == 0 {
		return nil
	}
	return v.pipe.Do(pipe.Item{Emit: func() error {
		_, err := v.stream.Write(out)
		return err
	}})
}

// A teller packs what there is to tell into frames.
type teller struct {
	prefix    []byte // of each body
	out, body []byte
	kind      Kind // of body
	scratch   [3 * binary.MaxVarintLen64]byte
}

func (t *teller) numbers(k Kind, numbers []uint64) {
	for _, n := range numbers {
		t.add(k, binary.AppendUvarint(t.scratch[:0], n))
	}
}

// add adds an item to the last frame if it is of that kind and has room, else to a new one.
func (t *teller) add(k Kind, item []byte) {
	if k != t.kind || len(t.body)+len(item) > maxSmall {
		t.frames()
		t.kind, t.body = k, append(t.body, t.prefix...)
	}
	t.body = append(t.body, item...)
}

// frames returns all frames.
func (t *teller) frames() []byte {
	if len(t.body) > 0 {
		t.out = AppendFrame(t.out, Frame{Kind: t.kind, Body: t.body})
	}
	t.kind, t.body = 0, t.body[:0]
	return t.out
}

// hear takes what the peer tells of this side's values.
func (s *sharer) hear(h *holder, f Frame) error {
	r := fields{b: f.Body}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.Kind {
	case Room:
		h.granted = int64(r.int())
		if s.out != nil {
			s.out.settle()
		}
	case Delivered:
		for len(r.b) > 0 && !r.short {
			t := r.tag()
			s.delivered(t, r.int())
		}
	case Want:
		s.wanted(&r)
	case Seen:
		if err := s.saw(&r); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: %v on a value stream", errFrame, f.Kind)
	}
	if r.short {
		return fmt.Errorf("%w: %v is cut short", errFrame, f.Kind)
	}
	return nil
}

// delivered takes note that n more Refs of a connection were delivered; 0: that all were, or never will be. s.mu is held.
func (s *sharer) delivered(t tag, n int) {
	c := s.refers[t]
	if c == nil {
		if c = s.shared.liveAs(s.peer, t); c == nil {
			return
		}
	}
	c.farEnded = c.farEnded || n == 0
	if n == 0 {
		delete(s.refers, t)
	}
	if s.out == nil {
		return
	}
	lent := s.out.lent[c]
	if n == 0 || n > len(lent) {
		n = len(lent)
	}
	for _, value := range lent[:n] {
		if value.refs--; value.refs == 0 && value.slot.latest != value {
			s.out.drop(value)
		}
	}
	if s.out.lent[c] = lent[n:]; n == len(lent) {
		delete(s.out.lent, c)
	}
}

// took notes that a Ref of c was delivered here.
func (s *sharer) took(c *connection) { s.note(c.tag, 1) }

// ended notes that c has ended here: no Ref on it will be delivered any more.
func (s *sharer) ended(c *connection) { s.note(c.tag, ended) }

// mostTold bounds what waits to be told while the peer takes no value stream.
const mostTold = 1 << 16

func (s *sharer) note(t tag, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return
	}
	switch before := s.told[t]; {
	case before == ended:
	case n == ended:
		s.told[t] = ended
	default:
		s.told[t] = before + n
	}
	if len(s.told) > mostTold {
		s.held.stream.Reset(resetByFrames)
	}
	if s.ready(); s.out != nil {
		s.out.kicked()
	}
}

// await returns a value that the peer has put, or is about to. gone ends the wait.
func (s *sharer) await(named ref, gone <-chan struct{}) (*holder, *heldValue, error) {
	s.mu.Lock()
	h := s.held
	s.mu.Unlock()
	switch {
	case h == nil:
		return nil, nil, errValues
	case h.epoch != named.epoch:
		return nil, nil, fmt.Errorf("%w: the ref is of stream %d, and %d lives", errValues, named.epoch, h.epoch)
	}
	v, err := h.await(named, gone)
	return h, v, err
}

// acceptValues answers a peer's opening of a value stream and takes what it puts there until it ends.
func (p *Proxy) acceptValues(peer string, opened []byte, in Incoming, accept func() Stream) {
	f := fields{b: opened[1:]}
	epoch := uint64(f.int())
	if f.short || p.Values < 0 || p.opening.Err() != nil {
		in.Refuse(refusedBadOpening, "no value stream is taken: it has no epoch, there is no room, or the proxy is about to end")
		return
	}
	s := p.sharerOf(peer)
	if n := s.lingers.Load(); n > 0 { // it may be Values already
		in.Refuse(refusedBadOpening, fmt.Sprintf("no value stream is taken: apps have yet to read %d bytes of values of lost ones", n))
		return
	}
	stream := accept()
	h := newHolder(s, stream, epoch)
	s.mu.Lock()
	old := s.held
	s.held = h
	clear(s.told) // they were of values that are gone
	if s.out != nil {
		clear(s.out.seen)
		s.out.want = nil
	}
	s.ready()
	s.mu.Unlock()
	if old != nil {
		old.lose()
		old.stream.Reset(resetByFrames)
	}
	err := h.run()
	h.lose()
	stream.Close()
	p.Log.Info("values that the peer has put here are lost", "peer", peer, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == h {
		s.held = nil
		if s.out != nil { // nobody tells any more what was delivered
			s.out.stream.Reset(resetByFrames)
		}
	}
}

// A peerTag names a connection among those of all peers.
type peerTag struct {
	peer string
	tag  tag
}

// liveAs returns the connection that a peer's tag names, or nil.
func (p *Proxy) liveAs(peer string, t tag) *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tagged[peerTag{peer, t}]
}

// closeValues ends all value streams.
func (p *Proxy) closeValues() {
	p.mu.Lock()
	var all []*sharer
	for _, s := range p.sharers {
		all = append(all, s)
	}
	p.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		if s.out != nil {
			s.out.stream.Reset(resetByApp)
		}
		if s.held != nil {
			s.held.stream.Reset(resetByApp)
		}
		s.mu.Unlock()
	}
}
