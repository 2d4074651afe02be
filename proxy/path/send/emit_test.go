package send

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A waitingStream notes which bytes were written, and which of them have left.
type waitingStream struct {
	pathtest.Sink
	mu            sync.Mutex
	waiting, left []byte
	flushed       chan int // how much has left, at each Flush
}

func (h *waitingStream) WriteMore(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = append(h.waiting, p...)
	return len(p), nil
}

func (h *waitingStream) Write(p []byte) (int, error) {
	h.WriteMore(p)
	h.leave()
	return len(p), nil
}

func (h *waitingStream) leave() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left, h.waiting = append(h.left, h.waiting...), nil
	return len(h.left)
}

func (h *waitingStream) Flush() { h.flushed <- h.leave() }

// wired is metrics that note the bytes that were handed to the tunnel.
type wired struct {
	path.NoMetrics
	bytes atomic.Int64
}

func (w *wired) Sent(_, _, _ string, _ tensor.Role, _, wire int) { w.bytes.Add(int64(wire)) }

// The metrics have every byte that was handed to the tunnel, as the tensors' records have those of blocks: also what
// tells the peer a mask, with whole blocks and with the parts of values.
func TestWireBytesAreCounted(t *testing.T) {
	const size = 16 << 10
	for name, c := range map[string]struct {
		toy   pathtest.Toy
		limit int // bytes of the last tensor that come
		kind  frame.Kind
	}{
		"blocks":               {pathtest.Toy{DType: tensor.Uint8}, size, frame.Block},
		"masked blocks":        {pathtest.Toy{DType: tensor.Uint8, Mask: tensor.Mask{1, 2, 3, 4}}, size, frame.Mask},
		"shared":               {pathtest.Toy{Base: true, Repeats: true, Flow: true, Mask: tensor.Mask{1, 2, 3, 4}}, size, frame.Ref},
		"parts of masked ones": {pathtest.Toy{Base: true, Repeats: true, Flow: true, Mask: tensor.Mask{1, 2, 3, 4}}, size - 100, frame.Mask},
	} {
		s := newTestSender(t, c.toy, policy.Rule{Codec: "lossless"})
		if c.toy.Base {
			s.direction.conn.Values = new(cachedValues)
		}
		seen := new(wired)
		s.env.Metrics = seen
		whole, last := pathtest.ToyPiece(1, size, make([]byte, size)), pathtest.ToyPiece(2, size, make([]byte, size))
		sent := append(whole, last[:8+c.limit]...)
		if err := s.takes(sent); err != nil {
			t.Fatal(err)
		}
		if err := s.cut.fallBack(true); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		wire := s.sink.Sent()
		if k := kinds(t, wire); int(seen.bytes.Load()) != len(wire) || k[c.kind] == 0 {
			t.Errorf("%s: %d bytes are counted of %d, in %v", name, seen.bytes.Load(), len(wire), k)
		}
		records := int64(0)
		for _, line := range s.env.Tensors.List() {
			records += line.WireBytes
		}
		if headers := int64(2 * (8 + 2)); records < int64(len(wire))-headers-4 || records > int64(len(wire)) {
			t.Errorf("%s: the records have %d bytes of %d", name, records, len(wire))
		}
	}
}

// Frames wait for a few more, and for nothing else: not while the app writes nothing, nor with opaque bytes.
func TestFramesLeaveTogether(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "wide"})
	stream := &waitingStream{flushed: make(chan int, 10)}
	s.direction.conn.Stream = stream
	for i := range byte(2*maxWaiting + 1) {
		if err := s.emit.writeMore([]byte{i}); err != nil {
			t.Fatal(err)
		}
	}
	flushes := func() (n []int) {
		for len(stream.flushed) > 0 {
			n = append(n, <-stream.flushed)
		}
		return n
	}
	if got := flushes(); !slices.Equal(got, []int{maxWaiting, 2 * maxWaiting}) {
		t.Errorf("of %d groups %v have left each time", 2*maxWaiting+1, got)
	}
	read := make(chan error, 1)
	go func() {
		_, err := s.read.once()
		read <- err
	}()
	if n := <-stream.flushed; n != 2*maxWaiting+1 { // the app has written nothing
		t.Errorf("%d groups of %d have left when the sender waits", n, 2*maxWaiting+1)
	}
	s.app.CloseWrite()
	if err := <-read; err != io.EOF {
		t.Errorf("reading to the end: %v", err)
	}
	if got := flushes(); got != nil {
		t.Errorf("there was nothing to flush any more, and %v was", got)
	}
	s.emit.writeMore([]byte{100})
	if err := s.Opaque(append(make([]byte, frame.MaxHeader), 'x')); err != nil {
		t.Fatal(err)
	}
	if len(stream.waiting) > 0 {
		t.Error("opaque bytes wait")
	}
}

// A group that falls back leaves in stream order, in pieces for which there is memory.
func TestGroupTravelsVerbatim(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "wide"})
	first, second := &block{data: []byte("abcdef"), filled: 6}, &block{data: []byte("ABCDEF"), filled: 2, index: 1}
	g := &group{literals: []byte("<>"), blocks: []*block{first, second}, size: 10, runs: []run{{2, 0}, {1, literal}, {2, 1}, {1, literal}, {4, 0}}}
	if err := s.emit.verbatim(g, nil); err != nil {
		t.Fatal(err)
	}
	if got := s.delivered(t); string(got) != "ab<AB>cdef" {
		t.Errorf("%q arrives", got)
	}
	long := &block{data: bytes.Repeat([]byte("0123456789"), 100_000), filled: 1_000_000}
	if err := s.emit.verbatim(&group{blocks: []*block{long}, size: 1_000_000, runs: []run{{1_000_000, 0}}}, nil); err != nil {
		t.Fatal(err)
	}
	if got := s.delivered(t); !bytes.Equal(got[10:], long.data) {
		t.Errorf("%d bytes arrive of a long block, or they differ", len(got)-10)
	}
	pathtest.Whole(t, s.env)
}
