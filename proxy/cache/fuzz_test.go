package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// A sink is a value stream to a peer that takes everything.
type sink struct{ end }

func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// check checks that the bytes that are counted, at both ends of a peer's value streams, are the bytes that are held.
func (p *Peer) check(t *testing.T, room int64) {
	t.Helper()
	p.submit.Lock()
	p.mu.Lock()
	defer p.submit.Unlock()
	defer p.mu.Unlock()
	if w := p.writer; w != nil {
		var used int64
		alive := map[*entry]bool{}
		for _, c := range p.conns {
			for _, e := range c.pending {
				alive[e] = true
			}
		}
		for _, slot := range w.numbers {
			if slot.keeps {
				used += slot.keepCost()
			}
			if !slot.leaving {
				used += slot.slotCost()
				alive[slot.latest] = true
			}
		}
		for _, e := range w.retired.FromOldest() {
			alive[e] = true
		}
		for e := range alive {
			used += int64(e.slot.size())
		}
		if w.used != used || used > room {
			t.Errorf("the writer counts %d bytes and holds %d, where %d have room", w.used, used, room)
		}
		if w.count != len(alive) {
			t.Errorf("the writer counts %d values and has %d", w.count, len(alive))
		}
	}
	if len(p.notes) > maxNotes+1 {
		t.Errorf("%d connections wait to be told of", len(p.notes))
	}
}

// check checks the same of the store of a stream that has ended.
func (s *store) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used < 0 || s.used > s.room || s.count < len(s.entries) {
		t.Errorf("the store counts %d bytes of %d, and %d values where it has %d", s.used, s.room, s.count, len(s.entries))
	}
	var held int64
	for _, e := range s.entries {
		held += int64(len(e.data))
	}
	if held > s.used {
		t.Errorf("the store counts %d bytes, and its values have %d", s.used, held)
	}
}

// Whatever a peer puts on its value stream, while it holds values of this side, breaks nothing but the streams between
// the two, takes no more memory than its room and the budget, and is given back.
func FuzzValueStream(f *testing.F) {
	const n = 64
	numbers := func(k frame.Kind, numbers ...uint64) []byte { return numbersFrame(k, numbers...) }
	block := func(slot uint32, form byte, body ...byte) []byte {
		return frame.Append(nil, frame.Frame{Kind: frame.Block, Slot: slot, Body: append([]byte{form}, body...)})
	}
	declare := func(slot uint32, codec string, key uint64) []byte {
		d := frame.Declaration{Codec: codec, DType: tensor.Float32, N: n, Key: key, Base: key}
		return frame.Append(nil, frame.Frame{Kind: frame.Declare, Slot: slot, Body: d.Append(nil)})
	}
	raw := make([]byte, 4*n)
	room := numbers(frame.Room, 1<<20)
	whole := block(0, frame.FormRaw, raw...)
	for _, codec := range []string{"lossless", "3lc(s=1.75)", "int8", "topk(k=0.1)", "rice", "drive"} {
		var coded []byte
		if c, err := all.New(codec); err == nil {
			if enc, err := c.NewEncoder(tensor.Float32, n); err == nil {
				coded, _ = enc.Append(nil, raw)
			}
		}
		f.Add(bytes.Join([][]byte{room, declare(0, codec, 1), whole, block(0, frame.FormCoded, append([]byte{0}, coded...)...),
			numbers(frame.Forget, 1), numbers(frame.Evict, 0)}, nil))
		f.Add(bytes.Join([][]byte{room, declare(0, codec, 1), whole, block(0, frame.FormShort, 3, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 68, 0, 0, 0, 0)}, nil))
	}
	reverse := binary.AppendUvarint(binary.AppendUvarint(nil, 1), 0)
	f.Add(bytes.Join([][]byte{room, numbers(frame.Want, 1, 0), declare(0, "lossless", 1), whole, numbers(frame.Kept, 0), whole,
		block(0, frame.FormReverse, append(reverse, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0)...), numbers(frame.Seen, 1, 0, 1)}, nil))
	f.Add(bytes.Join([][]byte{room, numbers(frame.Want, 1, 0, 1, 2), numbers(frame.Seen, 1, 0, 1, 0, 0), numbers(frame.Delivered, 2, 1, 2, 0, 3, 9)}, nil))
	f.Add(bytes.Join([][]byte{room, declare(0, "lossless", 1), declare(1, "lossless", 1), whole, numbers(frame.Kept, 0, 1), numbers(frame.Evict, 0), declare(0, "int8", 2), whole}, nil))
	f.Add(numbers(frame.Room, 1<<62))
	f.Add(numbers(frame.Room, 700))

	f.Fuzz(func(t *testing.T, wire []byte) {
		const mine = 1 << 20
		side := newSide(t, mine)
		side.config.Open = func(context.Context, string, []byte) (Stream, error) { return &sink{end{newQueue(), newQueue()}}, nil }
		side.peer.Connected(side.tag)
		stream := newFeed(room)
		accepted, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			side.Accept("other", []byte{frame.OpeningValues, 1}, func(_ tunnel.Code, text string) { t.Error(text) }, func() Stream {
				close(accepted)
				return stream
			})
		}()
		<-accepted
		side.peer.mu.Lock()
		s := side.peer.store
		side.peer.mu.Unlock()
		waitFor(t, side.peer.Ready)
		put := func() {
			for key := range uint64(3) {
				side.put(key+1, raw)
			}
		}
		put()
		gone := make(chan struct{})
		// Two apps are given every value. The second one's connection ends while the peer's frames come.
		second := frame.Tag{Number: side.tag.Number + 1}
		side.peer.Connected(second)
		secondGone := make(chan struct{})
		var apps sync.WaitGroup
		for tag, gone := range map[frame.Tag]chan struct{}{side.tag: gone, second: secondGone} {
			apps.Go(func() {
				for id := uint64(1); id <= 4; id++ {
					if data, release, err := side.peer.Await(tag, frame.ValueRef{Epoch: 1, ID: id, Size: len(raw)}, gone); err == nil {
						_ = data[len(raw)-1]
						release()
					}
				}
			})
		}
		stream.feed(wire)
		put()
		close(secondGone)
		side.peer.Ended(second)
		side.peer.check(t, mine)
		stream.in.end(frame.ResetByApp, true) // the end, behind the rest
		<-ended
		close(gone)
		apps.Wait()
		s.check(t)
		side.Reset()
		waitFor(t, func() bool { return !side.peer.Stats().Writing && side.config.Sending.Used() == 0 }) // what was under way is given back last
		side.whole(t)
	})
}
