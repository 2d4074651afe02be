package cache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// putInt8 puts a value of block key that may lose something.
func (s *side) putInt8(t *testing.T, key uint64, value []byte) frame.ValueRef {
	t.Helper()
	lossy, err := all.New("int8")
	if err != nil {
		t.Fatal(err)
	}
	record, _ := s.tensors.Of(tensors.Origin{}, policy.Flow{}, tensor.Tensor{Key: key, Size: len(value)})
	r, _, ok := s.peer.Put(s.tag, Put{Decl: frame.Declaration{Codec: "int8", DType: tensor.Float32, N: len(value) / 4, Key: key, Base: key}, Data: value,
		Choice: policy.Choice{Codec: lossy, Closed: true}, Role: tensor.State, Observe: record})
	if !ok {
		t.Fatal("there is no room")
	}
	return r
}

// A value that has lost something at the peer is not the same value to a connection whose values may lose nothing. The
// first value of a block loses nothing: there is no other to take a difference to.
func TestExactValuesAreNotServedByLossyOnes(t *testing.T) {
	for name, exactly := range map[string]func(a, b *side, v []byte) []byte{
		"a Ref": func(a, b *side, v []byte) []byte {
			r, ok := a.putOn(frame.Tag{Number: 7, Mine: true}, 1, v)
			if !ok {
				t.Fatal("there is no room")
			}
			got, err := b.takeOn(frame.Tag{Number: 7}, r)
			if err != nil {
				t.Fatal(err)
			}
			return got
		},
		"parts": func(a, b *side, v []byte) []byte {
			parts, ok := a.putParts(a.tag, 1, 0, v)
			if !ok {
				t.Fatal("there is no room")
			}
			return b.takeParts(t, b.tag, parts)
		},
	} {
		a, b := newSides(t, 1<<20)
		r := rand.New(rand.NewPCG(5, 6))
		first, second := weights(r, 500), weights(r, 500)
		if got, err := b.take(a.putInt8(t, 1, first)); err != nil || !bytes.Equal(got, first) {
			t.Fatalf("%s: the first value is another one, or %v", name, err)
		}
		if got, err := b.take(a.putInt8(t, 1, second)); err != nil || bytes.Equal(got, second) {
			t.Fatalf("%s: nothing was lost, or %v: the test shows nothing", name, err)
		}
		if !bytes.Equal(exactly(a, b, second), second) {
			t.Errorf("%s: the value has lost something", name)
		}
	}
}

// A name of content is not believed: bytes of the same name that are others arrive as they are.
func TestNamesAreNotBelieved(t *testing.T) {
	a, b := newSides(t, 1<<20)
	r := rand.New(rand.NewPCG(6, 7))
	one, other := weights(r, 1000), weights(r, 1000)
	copy(other, one[:1000])
	for i, v := range [][]byte{one, other, one[:3000]} {
		record, _ := a.tensors.Of(tensors.Origin{}, policy.Flow{}, tensor.Tensor{Key: 1, Size: len(v)})
		key := uint64(1 + i)
		parts, ok := a.peer.PutParts(a.tag, Put{Decl: frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: len(v) / 4, Key: key, Base: key}, Data: v,
			Choice: policy.Choice{Codec: a.lossless}, Observe: record, ID: 9, Own: key + 1<<32}, nil)
		if !ok || !bytes.Equal(b.takeParts(t, b.tag, parts), v) {
			t.Errorf("value %d: other bytes arrive, or none", i)
		}
	}
}

// A value to which a Ref is under way gives way to no other.
func TestValuesUnderWayStay(t *testing.T) {
	const n = 1000
	a, b := newSides(t, 3*4*n)
	r := rand.New(rand.NewPCG(7, 8))
	first, second := weights(r, n), weights(r, n)
	ref, ok := a.put(1, first)
	if !ok {
		t.Fatal("there is no room")
	}
	if _, ok := a.put(2, second); ok {
		t.Error("another value has taken the room")
	}
	if got, err := b.take(ref); err != nil || !bytes.Equal(got, first) {
		t.Fatalf("the value is another one, or %v", err)
	}
	waitFor(t, func() bool { return a.peer.Stats().Pending == 0 })
	if _, ok := a.put(2, second); !ok {
		t.Error("the room of a value that was delivered is not free")
	}
}

// A Ref must fit its value: its size, and the number of the value's stream.
func TestRefsThatDoNotFit(t *testing.T) {
	a, b := newSides(t, 1<<20)
	ref, ok := a.put(1, weights(rand.New(rand.NewPCG(8, 9)), 100))
	if !ok {
		t.Fatal("there is no room")
	}
	for name, c := range map[string]struct {
		change func(*frame.ValueRef)
		want   error
	}{
		"shorter":      {func(r *frame.ValueRef) { r.Size-- }, frame.ErrFrame},
		"longer":       {func(r *frame.ValueRef) { r.Size++ }, frame.ErrFrame},
		"other stream": {func(r *frame.ValueRef) { r.Epoch++ }, ErrLost},
	} {
		r := ref
		c.change(&r)
		if _, err := b.take(r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := b.take(ref); err != nil {
		t.Error(err)
	}
}

// A slot stands for one block: a Declare that says another ends the stream.
func TestSlotsStandForOneBlock(t *testing.T) {
	side := newSide(t, 1<<20)
	declare, _ := rawBlock(0, 400)
	d := frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: 100, Key: 7}
	another := frame.Append(nil, frame.Frame{Kind: frame.Declare, Slot: 0, Body: d.Append(nil)})
	f := newFeed(declare, declare, another)
	s := newStore(side.peer.config, side.peer, &side.peer.lingering, &side.peer.Receiving, f, 1)
	ended := make(chan error, 1)
	go func() { ended <- s.run() }()
	if err := <-ended; !errors.Is(err, frame.ErrFrame) {
		t.Error(err)
	}
}

// Values of a slot are kept only for a peer that knows the slot, and for the block that it says; words on values that
// are not kept, or are not to leave, are an error.
func TestKeptValues(t *testing.T) {
	a, _ := newSides(t, 1<<20)
	if _, ok := a.put(1, make([]byte, 400)); !ok {
		t.Fatal("there is no room")
	}
	p := a.peer
	p.mu.Lock()
	w := p.writer
	var slot *writerSlot
	for _, slot = range w.numbers {
	}
	slot.put = false
	w.keep(slot)
	unknown := slot.keeps
	slot.put, slot.leaving = true, true
	w.keep(slot)
	leaving := slot.keeps
	slot.leaving = false
	w.keep(slot)
	kept := slot.keeps
	seen := func(n uint64) error {
		b := binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(nil, w.epoch), uint64(slot.id)), n)
		return p.saw(&frame.Fields{B: b})
	}
	gone, early := seen(0), seen(slot.version+1)
	p.mu.Unlock()
	if unknown || leaving || !kept {
		t.Errorf("values are kept: of a slot that is not known %v, of one that leaves %v, of another %v", unknown, leaving, kept)
	}
	if !errors.Is(gone, frame.ErrFrame) || !errors.Is(early, frame.ErrFrame) {
		t.Errorf("a slot that stays is let go: %v; a value is seen that was not put: %v", gone, early)
	}
	other := slot.blockKey
	other.off++
	if p.keptFor(w.epoch, slot.id, slot.blockKey) == nil || p.keptFor(w.epoch, slot.id, other) != nil || p.keptFor(w.epoch+1, slot.id, slot.blockKey) != nil {
		t.Error("values are kept for another block, or another stream")
	}
}

// A peer that tells of more deliveries than there were Refs has all of them delivered, and no more.
func TestTooManyDeliveries(t *testing.T) {
	a, _ := newSides(t, 1<<20)
	if _, ok := a.put(1, make([]byte, 400)); !ok {
		t.Fatal("there is no room")
	}
	a.peer.mu.Lock()
	a.peer.delivered(a.tag, 5)
	a.peer.delivered(a.tag, 5)
	a.peer.mu.Unlock()
	if st := a.peer.Stats(); st.Pending != 0 || st.Referring != 1 {
		t.Errorf("%+v", st)
	}
	a.peer.check(t, 1<<20)
}

// Words on the values of one stream are not told of the values of the next.
func TestNotesAreOfOneStream(t *testing.T) {
	a, _ := newSides(t, 1<<20)
	a.peer.mu.Lock()
	a.peer.writer.want, a.peer.writer.seen[3] = []uint64{7}, 9
	a.peer.notes[frame.Tag{Number: 5}] = 2
	a.peer.mu.Unlock()
	f, ended := newFeed(), make(chan struct{})
	go func() {
		a.Accept("other", []byte{frame.OpeningValues, 99}, func(_ tunnel.Code, text string) { t.Error(text) }, func() Stream { return f })
		close(ended)
	}()
	waitFor(t, func() bool { return a.peer.Stats().StoreEpoch == 99 })
	a.peer.mu.Lock()
	if w := a.peer.writer; w != nil && len(w.want)+len(w.seen)+len(a.peer.notes) > 0 {
		t.Errorf("%v, %v and %v are to be told", w.want, w.seen, a.peer.notes)
	}
	a.peer.mu.Unlock()
	f.Reset(0)
	<-ended
}
