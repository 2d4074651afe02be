package proxy

import (
	"github.com/gradproxy/gradproxy/proxy/frame"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/policy"
)

// A heldStream notes what was written, and what of it has left.
type heldStream struct {
	sink
	mu         sync.Mutex
	held, left []byte
	flushed    chan int // how much has left, at each Flush
}

func (h *heldStream) WriteMore(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = append(h.held, p...)
	return len(p), nil
}

func (h *heldStream) Write(p []byte) (int, error) {
	h.WriteMore(p)
	h.leave()
	return len(p), nil
}

func (h *heldStream) leave() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left, h.held = append(h.left, h.held...), nil
	return len(h.left)
}

func (h *heldStream) Flush() { h.flushed <- h.leave() }

// Frames wait for a few more, and for nothing else: not while the app writes nothing, nor with opaque bytes.
func TestFramesLeaveTogether(t *testing.T) {
	p := newPair(t, nil, policy.Rule{Codec: "wide"}).near
	s := newStraightPath(t, p, toy{})
	stream := &heldStream{flushed: make(chan int, 10)}
	s.stream = stream
	for i := range byte(2*mostHeld + 1) {
		if err := s.writeMore([]byte{i}); err != nil {
			t.Fatal(err)
		}
	}
	flushes := func() (n []int) {
		for len(stream.flushed) > 0 {
			n = append(n, <-stream.flushed)
		}
		return n
	}
	if got := flushes(); !slices.Equal(got, []int{mostHeld, 2 * mostHeld}) {
		t.Errorf("of %d groups %v have left each time", 2*mostHeld+1, got)
	}
	read := make(chan error, 1)
	go func() {
		_, err := s.read()
		read <- err
	}()
	if n := <-stream.flushed; n != 2*mostHeld+1 { // the app has written nothing
		t.Errorf("%d groups of %d have left when the sender waits", n, 2*mostHeld+1)
	}
	s.app.CloseWrite()
	if err := <-read; err != io.EOF {
		t.Errorf("reading to the end: %v", err)
	}
	if got := flushes(); got != nil {
		t.Errorf("there was nothing to flush any more, and %v was", got)
	}
	s.writeMore([]byte{100})
	if err := s.opaque(append(make([]byte, frame.MaxHeader), 'x')); err != nil {
		t.Fatal(err)
	}
	if len(stream.held) > 0 {
		t.Error("opaque bytes wait")
	}
}
