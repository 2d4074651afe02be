package cache

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// A feed is the value stream of a hostile peer: the frames that were fed are read, and then nothing comes until it is
// reset.
type feed struct{ end }

func newFeed(wire ...[]byte) *feed {
	f := &feed{end{newQueue(), newQueue()}}
	f.feed(wire...)
	return f
}

func (f *feed) feed(wire ...[]byte) {
	for _, b := range wire {
		f.in.put(b)
	}
}

// rawBlock returns the frames of a slot's declaration and of a block of n bytes in it.
func rawBlock(slot uint32, n int) (declare, block []byte) {
	d := frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: n / 4, Key: uint64(slot) + 1}
	declare = frame.Append(nil, frame.Frame{Kind: frame.Declare, Slot: slot, Body: d.Append(nil)})
	return declare, frame.Append(nil, frame.Frame{Kind: frame.Block, Slot: slot, Body: append([]byte{frame.FormRaw}, make([]byte, n)...)})
}

// numbersFrame returns the frame of a list of numbers.
func numbersFrame(k frame.Kind, numbers ...uint64) []byte {
	var body []byte
	for _, n := range numbers {
		body = binary.AppendUvarint(body, n)
	}
	return frame.Append(nil, frame.Frame{Kind: k, Body: body})
}

// whole checks that all memory was given back.
func (s *side) whole(t *testing.T) {
	t.Helper()
	if n, m := s.config.Sending.Used(), s.config.Receiving.Used(); n != 0 || m != 0 {
		t.Errorf("%d and %d bytes of the budgets are not given back", n, m)
	}
	if n := s.config.Pool.InUse(); n != 0 {
		t.Errorf("%d bytes of buffers are not given back", n)
	}
}

// A value that the peer wants forgotten while an app is being given it takes room until the app has it.
func TestValuesThatAreDeliveredTakeRoom(t *testing.T) {
	for name, released := range map[string]bool{"delivered": true, "under way": false} {
		t.Run(name, func(t *testing.T) {
			const size = 100_000
			side := newSide(t, 3*size+512) // a slot's copy, and two values
			declare, block := rawBlock(0, size)
			f := newFeed(declare, block, block)
			s := newStore(side.peer.config, side.peer, &side.peer.lingering, &side.peer.Receiving, f, 1)
			ended := make(chan error, 1)
			go func() { ended <- s.run() }()
			v, err := s.await(frame.ValueRef{Epoch: 1, ID: 1, Size: size}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if released {
				s.release(v)
			}
			f.feed(numbersFrame(frame.Forget, 1), block)
			if _, err := s.await(frame.ValueRef{Epoch: 1, ID: 3, Size: size}, nil); (err == nil) != released {
				t.Errorf("another value in its place: %v", err)
			}
			f.Reset(0)
			if err := <-ended; errors.Is(err, frame.ErrFrame) == released {
				t.Errorf("the stream ended with %v", err)
			}
			if !released {
				s.release(v)
			}
			if want := int64(3*size + 512); released && s.used != want || !released && s.used != want-size {
				t.Errorf("%d bytes of values are counted", s.used)
			}
			side.whole(t)
		})
	}
}

// Values of a lost stream that apps are still being given count until they have been: a peer cannot add to them by
// losing one stream after another.
func TestLostValuesLinger(t *testing.T) {
	side := newSide(t, 1<<20)
	const size = 10_000
	declare, block := rawBlock(0, size)
	var ends []chan struct{}
	open := func() (f *feed, refused tunnel.Code) {
		f = newFeed(declare, block)
		accepted, ended := make(chan struct{}), make(chan struct{})
		ends = append(ends, ended)
		go func() {
			side.Accept("other", []byte{frame.OpeningValues, 1}, func(code tunnel.Code, _ string) { refused = code }, func() Stream { close(accepted); return f })
			close(ended)
		}()
		select {
		case <-accepted:
			return f, 0
		case <-ended:
			return f, refused
		}
	}
	waitStored := func(stream *feed) {
		waitFor(t, func() bool {
			side.peer.mu.Lock()
			defer side.peer.mu.Unlock()
			return side.peer.store != nil && side.peer.store.stream == Stream(stream)
		})
	}
	first, _ := open()
	waitStored(first)
	_, release, err := side.peer.Await(side.tag, frame.ValueRef{Epoch: 1, ID: 1, Size: size}, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, _ := open()
	waitStored(second)
	waitFor(t, func() bool { return side.peer.Stats().Lingering == size })
	if _, refused := open(); refused != frame.RefusedBadOpening {
		t.Error("a third stream was taken while values of the first are under way")
	}
	release()
	side.peer.mu.Lock()
	if n := side.peer.notes[side.tag]; n != 0 {
		t.Errorf("the peer is told of %d deliveries of a lost stream, and would take them for some of the next", n)
	}
	side.peer.mu.Unlock()
	third, refused := open()
	if refused != 0 {
		t.Error("a stream was refused though nothing of lost ones is under way")
	}
	waitStored(third)
	third.Reset(0)
	for _, ended := range ends {
		<-ended
	}
	if n := side.peer.Stats().Lingering; n != 0 {
		t.Errorf("%d bytes linger after all have been given back", n)
	}
}

// A peer that tells of no delivery has only so many Refs remembered, and blocks travel by themselves then.
func TestUndeliveredRefsAreBounded(t *testing.T) {
	a, _ := newSides(t, 1<<20)
	w := make([]byte, 400)
	put := 0
	for range 2 * maxPending {
		if _, ok := a.put(1, w); ok {
			put++
		}
	}
	if n := a.peer.Stats().Pending; put != maxPending || n != maxPending {
		t.Errorf("%d values were put and %d Refs are remembered, want %d", put, n, maxPending)
	}
}

// A job whose apps do not read has no more values put than the peer takes, however short they are: blocks travel by
// themselves then, until values are delivered. Else the peer would reset the stream, and with it other jobs'
// connections.
func TestShortValuesAreBounded(t *testing.T) {
	a, b := newSides(t, 1<<20)
	w := make([]byte, 400)
	put := func(i byte) (frame.ValueRef, bool) {
		w[0] = i
		return a.put(1, w)
	}
	first, _ := put(1)
	second, ok := put(2)
	if !ok {
		t.Fatal("there is no room")
	}
	a.peer.mu.Lock()
	a.peer.writer.count += maxEntries - 2
	a.peer.mu.Unlock()
	if _, ok := put(3); ok {
		t.Error("one value more is put than the peer takes")
	}
	if _, ok := put(2); !ok {
		t.Error("a value that the peer holds takes the room of another")
	}
	for _, r := range []frame.ValueRef{first, second} {
		if _, err := b.take(r); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool { return a.peer.Stats().Pending == 1 })
	if _, ok := put(3); !ok {
		t.Error("the place of a value that was delivered is not free")
	}
}

// Values wait for their peer's allowance, by the bytes that they take and the bytes that they decode to, and each frame
// for the peer's turn.
func TestValuesArePaced(t *testing.T) {
	const size = 10_000
	side := newSide(t, 1<<20)
	var mu sync.Mutex
	turns, begun, waits := 0, 0, map[int]int{}
	side.config.Schedule = func(peer string) func() func() {
		if peer != "other" {
			t.Errorf("turns of %q", peer)
		}
		return func() func() {
			mu.Lock()
			defer mu.Unlock()
			begun++
			return func() {
				mu.Lock()
				defer mu.Unlock()
				turns++
			}
		}
	}
	side.config.Pace = func(peer string, encoded, decoded int, gone <-chan struct{}) {
		if peer != "other" || gone == nil || begun != turns+1 {
			t.Errorf("%q waits outside a turn, or for ever", peer)
		}
		waits[encoded] = decoded
	}
	declare, block := rawBlock(0, size)
	f := newFeed(declare, block, block)
	ended := make(chan struct{})
	go func() {
		side.Accept("other", []byte{frame.OpeningValues, 1}, func(_ tunnel.Code, text string) { t.Error(text) }, func() Stream { return f })
		close(ended)
	}()
	waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return turns == 3 })
	f.Reset(0)
	<-ended
	if len(waits) != 1 || waits[1+size] != size {
		t.Errorf("waits for %v, want one for %d bytes that decode to %d", waits, 1+size, size)
	}
}
