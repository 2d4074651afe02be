package proxy

import (
	"bytes"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
)

// A holder holds the values that a peer has put here, for as long as their stream lives.
type holder struct {
	shared  *Proxy
	stream  Stream
	epoch   uint64
	lender  mem.Allocator
	paid    int // of the frame that is being read
	frames  frame.Reader
	pipe    *pipe.Pipe
	slots   map[uint32]*heldSlot   // the reader's
	codecs  recvSlots              // the codecs of texts
	puts    map[uint64]*heldSlot   // the reader's: values that are not forgotten
	keys    map[valueKey]*heldCopy // of the slots' blocks; guarded by mu
	last    uint64                 // number of the last value that was read
	room    int64                  // bytes that the peer may have here
	granted int64                  // bytes of values that the peer has room for; guarded by the sharer's mu
	sharer  *sharer                // takes what the peer tells of this side's values

	mu     sync.Mutex
	used   int64
	count  int // values that used counts
	values map[uint64]*heldValue
	stored uint64                // number of the last value that is or was among them
	waits  map[uint64]*valueWait // by number
	lent   int64                 // bytes of values that are being delivered
	lost   bool                  // the stream is: the sharer counts lent
	dead   chan struct{}         // closed when no value comes any more
}

// A valueWait is closed when the value is there.
type valueWait struct {
	there chan struct{}
	n     int // that wait
}

// A heldSlot is a slot of the value stream, as last declared. Its fields are the reader's, but for what decoding changes, in
// turn.
type heldSlot struct {
	*heldCopy
	text     string // of the codec
	codec    string // its name
	dec      codecs.Decoder
	opposite oppositeDecoder
	most     int           // bytes of an encoding
	turn     chan struct{} // as of recvSlot
}

// A heldValue is one value. The holder's mu guards all but data, which nobody changes.
type heldValue struct {
	data      []byte
	lent      int // deliveries under way
	forgotten bool
}

// mostValues bounds the values that a peer may have put here, which may be short.
const mostValues = 1 << 18

func newHolder(s *sharer, stream Stream, epoch uint64) *holder {
	p := s.shared
	h := &holder{shared: p, sharer: s, stream: stream, epoch: epoch, room: p.Values, slots: map[uint32]*heldSlot{}, puts: map[uint64]*heldSlot{},
		keys: map[valueKey]*heldCopy{}, codecs: recvSlots{newCodec: p.Codecs}, values: map[uint64]*heldValue{}, waits: map[uint64]*valueWait{}, dead: make(chan struct{})}
	h.lender = mem.NewAllocator(&p.buffers, p.received, &s.received)
	h.frames = frame.Reader{Source: stream, Limit: h.limit, Reserve: h.keeps, Pool: &p.buffers}
	h.pipe = pipe.New(p.pool, pipeDepth, func(error) { stream.Reset(frame.ResetByFrames) })
	return h
}

// limit tells the frame reader how long a body may be before memory is taken for it.
func (h *holder) limit(k frame.Kind, id uint32) (int, error) {
	switch k {
	case frame.Declare, frame.Room, frame.Forget, frame.Evict, frame.Delivered, frame.Want, frame.Kept, frame.Seen:
		return frame.MaxSmall, nil
	case frame.Block:
		if s := h.slots[id]; s != nil {
			return 1 + maxOpposite + s.most, nil
		}
		return 0, fmt.Errorf("%w: slot %d was not declared", frame.ErrFrame, id)
	}
	return 0, fmt.Errorf("%w: %v on a value stream", frame.ErrFrame, k)
}

// keeps takes memory for a body that is to be read. There is one value stream a peer, on which others wait: so where there is none
// it still reads one frame at a time.
func (h *holder) keeps(_ frame.Kind, _ uint32, n int) error {
	need := mem.Footprint(n)
	if !h.lender.Take(need) {
		if err := h.pipe.Wait(); err != nil {
			return err
		}
		if !h.lender.Take(need) {
			need = 0
		}
	}
	h.paid = need
	return nil
}

// run takes what the peer puts until the stream ends, and returns why it did.
func (h *holder) run() error {
	defer close(h.dead)
	for {
		f, err := h.frames.Next()
		if err == nil {
			err = h.take(f)
		}
		if err != nil {
			h.stream.Reset(frame.ResetByFrames)
			h.lender.Give(h.paid)
			if e := h.pipe.Wait(); e != nil {
				return e
			}
			return err
		}
	}
}

func (h *holder) take(f frame.Frame) error {
	switch f.Kind {
	case frame.Declare:
		return h.declare(f.Slot, f.Body)
	case frame.Block:
		return h.put(f)
	case frame.Forget:
		return h.forget(f.Body)
	case frame.Evict:
		return h.evict(f.Body)
	case frame.Kept:
		return h.keep(f.Body)
	case frame.Seen: // once what was put before is decoded
		f.Body = bytes.Clone(f.Body)
		return h.pipe.Do(pipe.Item{Emit: func() error { return h.sharer.hear(h, f) }})
	}
	return h.sharer.hear(h, f)
}

// declare gives a slot its codec. A slot that stands for the same block as before keeps its copy: only its codec changes.
func (h *holder) declare(id uint32, body []byte) error {
	d, err := frame.ParseDeclaration(body)
	if err != nil {
		return err
	}
	c, err := h.codecs.codec(d.Codec)
	if err != nil {
		return fmt.Errorf("%w: declare: %w", frame.ErrFrame, err)
	}
	s := &heldSlot{text: d.Codec, codec: name(c.String()), most: mostReferenced(c, &d)}
	switch old, k := h.slots[id], valueKeyOf(&d); {
	case old == nil:
		if err := h.account(k.slotCost(), 0); err != nil {
			return err
		}
		s.heldCopy = &heldCopy{valueKey: k, id: id, epoch: h.epoch, copy: reference.NewCopy(k.size(), 0)}
		h.mu.Lock()
		h.keys[k] = s.heldCopy
		h.mu.Unlock()
	case old.valueKey != k:
		return fmt.Errorf("%w: slot %d stands for another block already", frame.ErrFrame, id)
	default:
		s.heldCopy, s.turn = old.heldCopy, old.turn
	}
	if s.dec, err = reference.NewDecoder(c, d.DType, s.copy, s.copy); err != nil {
		return fmt.Errorf("%w: declare %s for %d %v: %w", frame.ErrFrame, d.Codec, d.N, d.DType, err)
	}
	h.slots[id] = s
	return nil
}

// mostReferenced returns the most bytes of a block's encoding against a reference.
func mostReferenced(c codecs.Codec, d *frame.Declaration) int {
	return mostEncoded(c, d) + reference.Overhead
}

// put takes a slot's next value, and over the frame's body.
func (h *holder) put(f frame.Frame) error {
	s := h.slots[f.Slot]
	dec, coded, err := h.decoder(s, f.Body)
	if err == nil {
		err = h.account(int64(s.size()), 1)
	}
	if err != nil {
		h.shared.buffers.Put(f.Body)
		return err
	}
	h.last++
	id := h.last
	h.puts[id] = s
	prev, done := s.turn, make(chan struct{})
	s.turn = done
	form, paid := f.Body[0], h.paid
	h.paid = 0
	v := &heldValue{data: make([]byte, s.size())}
	return h.pipe.Do(pipe.Item{
		Work: func() {
			if prev != nil {
				<-prev
			}
			defer close(done)
			begin := time.Now()
			err = s.decode(dec, v.data, form, coded)
			h.shared.Metrics.decoded(s.codec, time.Since(begin))
		},
		Emit: func() error {
			if err == nil {
				h.store(id, v)
				h.came(s.heldCopy)
			}
			return err
		},
		Done: func() {
			h.shared.buffers.Put(f.Body)
			h.lender.Give(paid)
		},
	})
}

// decoder returns what decodes a Block's body, and its encoding.
func (h *holder) decoder(s *heldSlot, body []byte) (codecs.Decoder, []byte, error) {
	switch {
	case len(body) == 0:
		return nil, nil, fmt.Errorf("%w: value without a form", frame.ErrFrame)
	case body[0] == frame.FormReverse:
		return h.opposite(s, body)
	}
	return s.dec, body[1:], nil
}

func (s *heldSlot) decode(dec codecs.Decoder, dst []byte, form byte, src []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decoder of %s: panic: %v", frame.ErrFrame, s.codec, p)
		}
	}()
	switch {
	case form == frame.FormCoded || form == frame.FormReverse:
		if err := dec.Decode(dst, src); err != nil {
			return fmt.Errorf("%w: value of %s: %w", frame.ErrFrame, s.codec, err)
		}
	case form != frame.FormRaw:
		return fmt.Errorf("%w: value of form %d", frame.ErrFrame, form)
	case copy(dst, src) != len(dst) || len(src) != len(dst):
		return fmt.Errorf("%w: raw value of %d bytes in a slot of %d", frame.ErrFrame, len(src), len(dst))
	default:
		s.copy.Set(dst)
	}
	return nil
}

// store lets Refs have a value.
func (h *holder) store(id uint64, v *heldValue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values[id], h.stored = v, id
	if w := h.waits[id]; w != nil {
		close(w.there)
		delete(h.waits, id)
	}
}

// forget drops values, behind what was put before.
func (h *holder) forget(body []byte) error {
	f := frame.Fields{B: body}
	var gone []uint64
	for len(f.B) > 0 {
		id := uint64(f.Int())
		s := h.puts[id]
		if f.Short || s == nil {
			return fmt.Errorf("%w: value %d is to be forgotten, and is not held", frame.ErrFrame, id)
		}
		delete(h.puts, id)
		gone = append(gone, id)
	}
	return h.pipe.Do(pipe.Item{Emit: func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, id := range gone {
			v := h.values[id]
			delete(h.values, id)
			if v.forgotten = true; v.lent == 0 {
				h.free(int64(len(v.data)), 1)
			}
		}
		return nil
	}})
}

// evict drops slots with their copies. What was put before is decoded all the same.
func (h *holder) evict(body []byte) error {
	f := frame.Fields{B: body}
	var gone []*heldCopy
	var cost int64
	for len(f.B) > 0 {
		id := uint32(min(f.Int(), frame.MaxSlots))
		s := h.slots[id]
		if f.Short || s == nil {
			return fmt.Errorf("%w: slot %d is to be evicted, and was not declared", frame.ErrFrame, id)
		}
		delete(h.slots, id)
		gone = append(gone, s.heldCopy)
		cost += s.slotCost()
	}
	return h.pipe.Do(pipe.Item{Emit: func() error {
		for _, s := range gone {
			h.left(s)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.free(cost, 0)
		return nil
	}})
}
