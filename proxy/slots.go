package proxy

import (
	"container/list"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"strings"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
)

// A slot is one block's place in a tensor, with the coder that remembers what it must from step to step. Codecs
// that remember nothing share slots between all blocks of a shape, in a few lanes, so that several cores can be at
// blocks of the same shape.

// maxSendSlots bounds what a sender declares: 64 k elements a slot make 4 GiB of tensors. Beyond it the slot that was
// used least recently is declared anew.
const maxSendSlots = frame.MaxSlots / 4

// lanes is how many blocks of one shape may be encoded at a time.
const lanes = 4

// maxOdd bounds the slots of odd shapes. The messages of sparse tensors have other lengths each time, few of which come
// again, and coders may take memory in proportion.
const maxOdd = 64

// A sendSlot is a slot at the sender. Its encoder is used by one block at a time, in stream order: a block's work
// begins by waiting for turn, and ends by closing the channel that became the next block's turn.
type sendSlot struct {
	id       uint32
	enc      codecs.Encoder
	loose    *feedback.Encoder // in its stead: the residual comes with the block
	broken   bool              // enc failed in a way that is not allowed; blocks travel raw. Set and read in turn
	turn     chan struct{}     // closed when the block before has been encoded; nil: there was none
	declared bool
	key      sendKey
	memory   *residual.Dense
	residual []float32 // the block's part of it, if the encoder has feedback
	encoded  int       // blocks so far
}

type sendSlots struct {
	common slotTable
	odd    slotTable // those of odd shapes, in which lanes are one
	next   uint32
	lane   int
}

// A slotTable finds slots by what they are for, and the one that was used least recently. The zero slotTable is empty.
type slotTable struct {
	byKey  map[sendKey]*list.Element // of *sendSlot
	recent list.List                 // the most recently used first
}

type sendKey struct {
	frame.Declaration
	lane  int
	loose bool
}

// get returns the slot for a block that is declared as d, whose coder keeps nothing of a tensor unless d.key is set. m is
// what is remembered of the tensor, and nil for codecs that lose nothing, and for rows. odd: its shape is that of a message.
func (s *sendSlots) get(d frame.Declaration, c policy.Choice, m *residual.Dense, odd bool) (*sendSlot, error) {
	k := sendKey{Declaration: d, loose: m == nil && c.Feedback}
	slots := &s.common
	if odd {
		slots = &s.odd
	} else if d.Key == 0 {
		s.lane = (s.lane + 1) % lanes
		k.lane = s.lane
	}
	old := slots.use(k)
	if old != nil && old.memory == m {
		return old, nil
	}
	slot := &sendSlot{key: k, memory: m}
	var err error
	if m != nil && c.Feedback {
		slot.residual = m.Part(d.Off, d.Size())
		slot.enc, err = feedback.NewEncoder(c.Codec, d.DType, slot.residual)
	} else if k.loose {
		slot.loose, err = feedback.New(c.Codec, d.DType, d.N)
	} else {
		slot.enc, err = c.Codec.NewEncoder(d.DType, d.N)
	}
	if err != nil {
		return nil, err
	}
	if old != nil { // its tensor was forgotten: the coders begin anew at both ends
		slot.id, slot.turn = old.id, old.turn
	} else if odd && slots.len() >= maxOdd || slots.len() >= maxSendSlots {
		slot.id = slots.evict()
	} else {
		slot.id = s.next
		s.next++
	}
	slots.put(slot)
	return slot, nil
}

func (t *slotTable) len() int { return len(t.byKey) }

// use returns the slot of k, which is then the most recently used, or nil.
func (t *slotTable) use(k sendKey) *sendSlot {
	e := t.byKey[k]
	if e == nil {
		return nil
	}
	t.recent.MoveToFront(e)
	return e.Value.(*sendSlot)
}

// put takes in a slot, in the stead of the one of the same key, if there is one.
func (t *slotTable) put(slot *sendSlot) {
	if e := t.byKey[slot.key]; e != nil {
		e.Value = slot
		return
	}
	if t.byKey == nil {
		t.byKey = map[sendKey]*list.Element{}
	}
	t.byKey[slot.key] = t.recent.PushFront(slot)
}

// evict drops the slot that was used least recently and returns its number.
func (t *slotTable) evict() uint32 {
	slot := t.recent.Remove(t.recent.Back()).(*sendSlot)
	delete(t.byKey, slot.key)
	return slot.id
}

// A recvSlot is a slot at the receiver, with the same turns as at the sender. It keeps no more of its declaration than it
// needs: a peer may declare very many.
type recvSlot struct {
	codec      string
	bytes      int // of the block's elements
	dec        codecs.Decoder
	maxEncoded int
	turn       chan struct{}
	took       time.Duration // that decoding takes, the least of late; set in turn
}

// sawDecoding takes note of how long decoding took. The least counts: most of the rest is the scheduler's.
func (s *recvSlot) sawDecoding(took time.Duration) {
	s.took = min(took, s.took+s.took/64+1)
}

func (s *recvSlot) size() int { return s.bytes }

type recvSlots struct {
	newCodec func(text string) (codecs.Codec, error)
	codecs   map[string]codecs.Codec
	slots    map[uint32]*recvSlot
}

// maxCodecTexts bounds the codecs that a peer can make a connection's receiver keep.
const maxCodecTexts = 64

// declare sets a slot from the body of a Declare frame.
func (s *recvSlots) declare(id uint32, body []byte) error {
	d, err := frame.ParseDeclaration(body)
	if err != nil {
		return err
	}
	c, err := s.codec(d.Codec)
	if err != nil {
		return fmt.Errorf("%w: declare: %w", frame.ErrFrame, err)
	}
	dec, err := c.NewDecoder(d.DType, d.N)
	if err != nil {
		return fmt.Errorf("%w: declare %s for %d %v: %w", frame.ErrFrame, d.Codec, d.N, d.DType, err)
	}
	if s.slots == nil {
		s.slots = map[uint32]*recvSlot{}
	}
	s.slots[id] = &recvSlot{codec: name(c.String()), bytes: d.Size(), dec: dec, maxEncoded: mostEncoded(c, &d), took: time.Hour}
	return nil
}

// mostEncoded returns the most bytes of a block's encoding. Codecs without loss answer ErrUnsuited where they gain nothing,
// and their MaxEncodedLen, which knows no element type, is far more than that.
func mostEncoded(c codecs.Codec, d *frame.Declaration) int {
	if !codecs.Lossy(c) {
		return d.Size() + frame.MaxSmall
	}
	return max(c.MaxEncodedLen(d.N), d.Size())
}

// frameRoom returns the bytes in which a block's frame is made, by c or by a codec without loss.
func frameRoom(d *frame.Declaration, c codecs.Codec) int {
	n := d.Size()
	if codecs.Lossy(c) {
		n = max(n, c.MaxEncodedLen(d.N))
	}
	return frame.MaxHeader + 1 + n + n/64 // codecs without loss notice a little late that they gain nothing
}

// name returns a codec text without its parameters, as hellos list and metrics show it: there are few.
func name(text string) string {
	before, _, _ := strings.Cut(text, "(")
	return before
}

func (s *recvSlots) codec(text string) (codecs.Codec, error) {
	if c, ok := s.codecs[text]; ok {
		return c, nil
	}
	c, err := s.newCodec(text)
	if err != nil {
		return nil, err
	}
	if s.codecs == nil {
		s.codecs = map[string]codecs.Codec{}
	}
	if len(s.codecs) < maxCodecTexts {
		s.codecs[text] = c
	}
	return c, nil
}

// get returns a slot that was declared.
func (s *recvSlots) get(id uint32) (*recvSlot, error) {
	if slot := s.slots[id]; slot != nil {
		return slot, nil
	}
	return nil, fmt.Errorf("%w: slot %d was not declared", frame.ErrFrame, id)
}

// limit tells the frame reader how long a body may be before memory is taken for it.
func (s *recvSlots) limit(k frame.Kind, id uint32) (int, error) {
	switch k {
	case frame.Bytes:
		return frame.MaxBytes, nil
	case frame.Declare, frame.Ref:
		return frame.MaxSmall, nil
	case frame.Block:
		slot, err := s.get(id)
		if err != nil {
			return 0, err
		}
		return 1 + slot.maxEncoded, nil
	case frame.Gather:
		return frame.MaxBlock, nil
	}
	return 0, nil
}

// declarationOf returns how the next block of a tensor travels in a slot of its codec. Slots know nothing of rows, which
// are others each time: what is owed to them comes with the block.
func declarationOf(c *tensorCut, job string, bytes int) frame.Declaration {
	t := c.t
	d := frame.Declaration{Codec: c.text, DType: t.DType, N: bytes / t.DType.Size()}
	if codecs.Lossy(c.choice.Codec) && c.rows == nil {
		d.Job, d.Key, d.Off, d.Base, d.Keys = job, t.Key, c.off, t.Base, t.Keys
	}
	return d
}
