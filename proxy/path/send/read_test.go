package send

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// A sender that stops amid a block, perhaps since it waits for an answer to bytes that wait here, is not held up: the
// bytes travel verbatim after a while.
func TestStalledBlockTravels(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{Flow: true}, policy.Rule{Codec: "wide"})
	piece := pathtest.ToyPiece(1, 8000, make([]byte, 5000))
	ended := make(chan error, 1)
	go func() { ended <- s.Run() }()
	s.app.Write(piece)
	for deadline := time.Now().Add(time.Minute); len(s.sink.Sent()) < len(piece); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes have left of %d that wait for no more", len(s.sink.Sent()), len(piece))
		}
	}
	s.app.CloseWrite()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := deliver(t, s.env, s.sink.Sent()); !bytes.Equal(got, piece) {
		t.Errorf("%d bytes arrive of %d, or they differ", len(got), len(piece))
	}
	pathtest.Whole(t, s.env)
}

// A FIN is no error; a reset is one, also if bytes came before it.
func TestEndOfTheApp(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{})
	s.app.Write([]byte("bytes"))
	s.app.CloseWrite()
	if err := s.Run(); err != nil {
		t.Errorf("a FIN is %v", err)
	}
	s = newTestSender(t, pathtest.Toy{})
	s.app.Write([]byte("bytes"))
	s.app.SetLinger(0)
	s.app.Close()
	if err := s.Run(); !errors.Is(err, path.ErrAppGone) {
		t.Errorf("a reset is %v", err)
	}
	pathtest.Whole(t, s.env)
}

// The reader waits for all bytes of a block only where they are sure to come.
func TestMinBytes(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{})
	for _, c := range []struct {
		hold, n, want int
		timed         bool
	}{{hold: 0, n: 1000, want: 1}, {hold: 999, n: 1000, want: 1}, {hold: 1000, n: 1000, want: 1000},
		{hold: 1 << 20, n: 1000, want: 1000 + ahead}, {hold: 1 << 20, n: 1000, want: 1000, timed: true}} {
		s.cut.direct.hold, s.cut.group.timed = c.hold, c.timed
		if got := s.read.minBytes(c.n); got != c.want {
			t.Errorf("of %d bytes, where %d are sure to come (timed: %v), the reader waits for %d, want %d", c.n, c.hold, c.timed, got, c.want)
		}
	}
	s.cut.group.timed = false
	if err := s.read.deadline(); err != nil || s.read.armed {
		t.Errorf("a deadline is set where nothing waits: %v", err)
	}
}
