package proxy

import (
	"bytes"
	"errors"
	"github.com/gradproxy/gradproxy/proxy/frame"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// A feed is a stream of a hostile peer: what was fed is read, and then nothing comes until it is reset.
type feed struct {
	sink
	chunks chan []byte
	reset  chan struct{}
}

func newFeed(wire ...[]byte) *feed {
	f := &feed{chunks: make(chan []byte, 1000), reset: make(chan struct{})}
	f.feed(wire...)
	return f
}

func (f *feed) feed(wire ...[]byte) {
	for _, b := range wire {
		for c := range slices.Chunk(b, 256<<10) {
			f.chunks <- c
		}
	}
}

func (f *feed) ReadChunk() ([]byte, error) {
	select {
	case c := <-f.chunks:
		return bytes.Clone(c), nil
	case <-f.reset:
		return nil, &tunnel.ResetError{Peer: "far", Code: frame.ResetByApp, Remote: true}
	}
}

func (f *feed) Reset(tunnel.Code) {
	select {
	case <-f.reset:
	default:
		close(f.reset)
	}
}

// rawBlock returns the frames of a slot's declaration and of a block of n bytes in it.
func rawBlock(slot uint32, n int) (declare, block []byte) {
	d := frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: n / 4, Key: uint64(slot) + 1}
	declare = frame.Append(nil, frame.Frame{Kind: frame.Declare, Slot: slot, Body: d.Append(nil)})
	return declare, frame.Append(nil, frame.Frame{Kind: frame.Block, Slot: slot, Body: append([]byte{frame.FormRaw}, make([]byte, n)...)})
}

// A peer that opens many connections and announces a large block on each, but sends no block to its end, makes the proxy hold no more
// than its memory, and does not keep others from theirs.
func TestAnnouncedBlocksAreBounded(t *testing.T) {
	const connections = 40
	p := newTestProxy(t)
	p.budget, p.received = mem.NewBudget(0), mem.NewBudget(32<<20)
	p.memoryWait = time.Hour // none will be had
	stop := bounded(t, p, connections)
	declare, block := rawBlock(0, 4<<20)
	var feeds []*feed
	ended := make(chan error, connections)
	for range connections {
		f := newFeed(declare, block[:len(block)-1])
		feeds = append(feeds, f)
		r := newReceiver(&connection{shared: p, peer: "hostile", stream: f, log: p.Log}, f)
		go func() { ended <- r.run() }()
	}
	hostile := &p.cache.Peer("hostile").Receiving
	waitFor(t, func() bool {
		held, waiting := p.received.Held(hostile)
		return waiting > 0 && waiting+int(held/(8<<20)) == connections
	})

	a, far, err := tcpPair()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	defer a.Close()
	declare, block = rawBlock(0, 1<<20)
	honest := newFeed(declare, block, frame.Append(nil, frame.Frame{Kind: frame.CloseWrite}))
	done := make(chan error, 1)
	r := newReceiver(&connection{shared: p, peer: "honest", conn: app.Plain(a), stream: honest, log: p.Log}, honest)
	go func() { done <- r.run(); a.CloseWrite() }()
	if n, err := io.Copy(io.Discard, far); n != 1<<20 || err != nil {
		t.Errorf("beside a hostile peer %d bytes of a block of 1 MiB were delivered: %v", n, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}

	for _, f := range feeds { // those that hold nothing find what the others give back
		f.Reset(0)
	}
	for range connections {
		if err := <-ended; err == nil {
			t.Error("a block that was cut short is no error")
		}
	}
	stop()
	whole(t, p)
}

// A block for which there is no memory in time, or ever, resets its connection. Those before it, for which spare has room, are
// delivered.
func TestNoMemoryForBlock(t *testing.T) {
	for name, size := range map[string]int{"in time": 128 << 10, "ever": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			p := newTestProxy(t)
			p.received = mem.NewBudget(1 << 20)
			p.memoryWait = time.Millisecond
			others := make([]mem.Share, 100) // that leave next to nothing
			for i := range others {
				others[i].Peer = new(mem.Share)
				for p.received.Take(&others[i], 1<<10) {
				}
			}
			a, far, err := tcpPair()
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			small, smallBlock := rawBlock(0, mem.MinBlock)
			large, largeBlock := rawBlock(1, size)
			f := newFeed(small, smallBlock, smallBlock, large, largeBlock, frame.Append(nil, frame.Frame{Kind: frame.CloseWrite}))
			c := &connection{shared: p, peer: "far", conn: app.Plain(a), stream: f, log: p.Log}
			err = newReceiver(c, f).run()
			if !errors.Is(err, mem.ErrMemory) || c.how(nil, err) != "memory" {
				t.Errorf("run = %v (%s), want no memory", err, c.how(nil, err))
			}
			a.CloseWrite()
			if n, err := io.Copy(io.Discard, far); n != 2*mem.MinBlock || err != nil {
				t.Errorf("%d bytes were delivered, %v; want the %d before", n, err, 2*mem.MinBlock)
			}
			for i := range others {
				held, _ := p.received.Held(&others[i])
				p.received.Give(&others[i], int(held))
			}
			whole(t, p)
		})
	}
}

// A peer may declare as many slots as there is memory for, and all that they took is given back.
func TestDeclaredSlotsAreBounded(t *testing.T) {
	p := newTestProxy(t)
	p.received = mem.NewBudget(1 << 20)
	p.memoryWait = time.Millisecond
	var wire []byte
	for slot := range uint32(10_000) {
		declare, _ := rawBlock(slot, 4)
		wire = append(wire, declare...)
	}
	f := newFeed(wire, frame.Append(nil, frame.Frame{Kind: frame.CloseWrite}))
	r := newReceiver(&connection{shared: p, peer: "far", stream: f, log: p.Log}, f)
	if err := r.run(); !errors.Is(err, mem.ErrMemory) {
		t.Errorf("10,000 slots in 1 MiB: %v", err)
	}
	if n := len(r.slots.slots); n*recvSlotCost > 1<<20 || n < 1000 {
		t.Errorf("%d slots were taken", n)
	}
	whole(t, p)
}
