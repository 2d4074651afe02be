package send

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
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
