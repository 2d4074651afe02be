package proxy

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/proxy/policy"
)

// The kernel says nothing of bytes that come while a block is dealt with, and once more of the first that is enough to one
// who waits.
func TestQuietWhileNobodyWaits(t *testing.T) {
	p := newPair(t, nil, policy.Rule{Codec: "wide"}).near
	const size = 2 << 20
	values := random(rand.New(rand.NewPCG(1, 2)), size)
	s := newStraightPath(t, p, toy{})
	said := func() (n int) {
		err := s.sender.app.raw.Control(func(fd uintptr) {
			var err error
			if n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	piece := toyPiece(1, size, values)
	first := len(piece) - size + 1<<20
	go s.app.Write(piece[:first])
	s.readAll(t, first)
	waits := make(chan error, 1)
	go func() { // the kernel wakes it for all that it lacks, not for a part
		for s.seen.bytes < len(piece) {
			if _, err := s.read(); err != nil {
				waits <- err
				return
			}
		}
		waits <- nil
	}()
	s.app.Write(piece[first : first+1000])
	for i := 0; said() == 1 || said() >= s.most; i++ {
		if i == 1000 {
			t.Fatalf("a sender that waits for the rest of a block of %d bytes is told of %d", size, said())
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.app.Write(piece[first+1000:])
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	if got := said(); got < 1<<20 {
		t.Errorf("while a block is dealt with the poller is told of %d bytes", got)
	}
	go func() {
		_, err := s.read()
		waits <- err
	}()
	s.app.Write([]byte{255})
	if err := <-waits; err != nil { // it was told of one byte
		t.Fatal(err)
	}
	whole := append(piece, 255)
	if got := s.delivered(t, len(whole)); !bytes.Equal(got, whole) {
		t.Error("other bytes arrive")
	}
}
