package send

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// The kernel reports no bytes that come while a block is dealt with, and reports them to a reader that waits once there
// are enough.
func TestLowWater(t *testing.T) {
	const size = 2 << 20
	values := pathtest.Random(rand.New(rand.NewPCG(1, 2)), size)
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "wide"})
	said := func() (n int) {
		raw, err := s.direction.conn.App.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
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
	piece := pathtest.ToyPiece(1, size, values)
	first := len(piece) - size + 1<<20
	go s.app.Write(piece[:first])
	s.readAll(t, first)
	high := said()
	require.Named(t, "tcp_rmem", tcpMemory(t) >= 6<<20, "net.ipv4.tcp_rmem that lets receive buffers grow to 6 MiB, as it does unless it was changed")
	waits := make(chan error, 1)
	go func() { // the kernel wakes it for all that it lacks, not for a part
		for s.seen.bytes < len(piece) {
			if _, err := s.read.once(); err != nil {
				waits <- err
				return
			}
		}
		waits <- nil
	}()
	s.app.Write(piece[first : first+1000])
	for began := time.Now(); said() == 1 || said() == high; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("a sender that waits for the rest of a block of %d bytes is told of %d", size, said())
		}
	}
	s.app.Write(piece[first+1000:])
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	if got := said(); got != high || got <= size {
		t.Errorf("while blocks are dealt with the poller is told of %d bytes, and once of %d", got, high)
	}
	go func() {
		_, err := s.read.once()
		waits <- err
	}()
	s.app.Write([]byte{255})
	if err := <-waits; err != nil { // it was told of one byte
		t.Fatal(err)
	}
	whole := append(piece, 255)
	if got := s.delivered(t); !bytes.Equal(got, whole) {
		t.Error("other bytes arrive")
	}
}

// tcpMemory returns how large this network namespace lets the kernel make a receive buffer.
func tcpMemory(t *testing.T) (limit int) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_rmem")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), new(int), new(int), &limit); err != nil {
		t.Fatal(err)
	}
	return limit
}
