package send

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
)

// A Sender at rest reads from an app that takes nothing, and the Sender that continues it sends the bytes first. Small
// pieces take little memory.
func TestBytesReadAtRestAreSentLater(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{})
	piece := pathtest.ToyPiece(1, 100<<10, pathtest.Random(rand.New(rand.NewPCG(1, 2)), 100<<10))
	done := make(chan struct{})
	go s.app.Write(piece)
	s.Unstick(done, func() bool {
		if s.read.unsent.bytes >= len(piece) {
			close(done)
			return false
		}
		return true
	})
	if !s.Unsent() || s.read.unsent.bytes > 3*len(piece) {
		t.Errorf("%d bytes of memory are taken for %d", s.read.unsent.bytes, len(piece))
	}
	if err := s.read.resend(); err != nil {
		t.Fatal(err)
	}
	if got := s.delivered(t); !bytes.Equal(got, piece) {
		t.Errorf("%d other bytes arrive", len(got))
	}
	if s.Unsent() {
		t.Error("the bytes are sent, and kept")
	}
}

// An app that writes without end before it reads is reset once its bytes take all the memory that they may.
func TestAppThatNeverReadsIsResetAtRest(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{})
	s.read.unsent = unsent{alloc: &s.direction.alloc, bytes: unreadMax - 1}
	go s.app.Write(make([]byte, 1000))
	s.Unstick(make(chan struct{}), func() bool { return true })
	if c := s.direction.conn; !c.Aborted() {
		t.Error("the connection goes on")
	}
	s.read.unsent.drop()
	if _, err := s.read.once(); err == nil || err == path.ErrRest {
		t.Errorf("reading from a connection that was reset: %v", err)
	}
}
