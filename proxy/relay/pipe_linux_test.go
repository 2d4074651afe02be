package relay

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// narrow returns the ends of a relayed connection whose server takes little at a time.
func narrow(t *testing.T, r *Relay) (client, server *net.TCPConn, ended <-chan Ending) {
	t.Helper()
	client, a := tcpPair(t)
	b, server := tcpPair(t)
	b.SetWriteBuffer(16 << 10)
	end := make(chan Ending, 1)
	if err := r.Add(a, b, func(e Ending) { end <- e }); err != nil {
		t.Fatal(err)
	}
	return client, server, end
}

// arrives sends size random bytes and checks that they, and an orderly end, arrive.
func arrives(t *testing.T, client, server *net.TCPConn, ended <-chan Ending, size int) {
	t.Helper()
	data, rnd := make([]byte, size), rand.NewChaCha8([32]byte{1})
	rnd.Read(data)
	go func() {
		client.Write(data)
		client.CloseWrite()
	}()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes of %d arrive, or others: %v", len(got), size, err)
	}
	server.Close()
	if e := <-ended; e.Reset {
		t.Errorf("it ends as %+v", e)
	}
}

// page gives each thread of a Relay that has no pairs pipes of one page.
func page(t *testing.T, r *Relay, each int) {
	t.Helper()
	for _, l := range r.loops {
		for range each {
			p := newPipe()
			if p == nil {
				t.Fatal("there are no pipes")
			}
			if size, err := unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, 4<<10); err != nil || size != os.Getpagesize() {
				t.Fatalf("a pipe has %d bytes: %v", size, err)
			}
			l.pipes = append(l.pipes, p)
		}
	}
}

// Pipes may be small, as those are that the kernel gives a user who has many.
func TestSmallPipes(t *testing.T) {
	r := newRelay(t)
	page(t, r, 4)
	for _, size := range []int{48 << 10, 4 << 20} {
		client, server, ended := narrow(t, r)
		arrives(t, client, server, ended, size)
	}
}

// Where there is no descriptor for a pipe bytes arrive all the same.
func TestNoPipes(t *testing.T) {
	r := newRelay(t)
	client, server, ended := narrow(t, r)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	if newPipe() != nil {
		t.Fatal("there is a pipe")
	}
	arrives(t, client, server, ended, 4<<20)
}

// No pipe is lost, whatever the pairs go through: bulk that becomes thin while its reader is slow above all.
func TestPipesComeBack(t *testing.T) {
	before := descriptors(t)
	r, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	page(t, r, 1) // which a fill takes first: a page at a time is thin
	for range 8 {
		client, server, ended := narrow(t, r)
		arrives(t, client, server, ended, 2<<20)
		client.Close()
	}
	r.Close()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) { // the thread closes its own when it ends
		if after := descriptors(t); after <= before {
			return
		} else if time.Since(begin) > 20*time.Second {
			t.Fatalf("%d descriptors are open, %d were before", after, before)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
