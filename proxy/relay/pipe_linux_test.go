package relay

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
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
			p := newPipe(pipeSize)
			if p == nil {
				t.Fatal("there are no pipes")
			}
			if size, err := unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, 4<<10); err != nil || size != os.Getpagesize() {
				t.Fatalf("a pipe has %d bytes: %v", size, err)
			}
			l.pipes = append(l.pipes, p)
			r.pipes.Add(1)
		}
	}
}

// Pipes may be small, as the kernel makes them for a user with many.
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
	if newPipe(pipeSize) != nil {
		t.Fatal("there is a pipe")
	}
	arrives(t, client, server, ended, 4<<20)
}

// There are no more pipes than a Relay may have, and each byte is told of when it is passed on.
func TestBounds(t *testing.T) {
	var moved atomic.Int64
	r, err := New(Config{Threads: 1, Pipes: 1, Moved: func(n int) { moved.Add(int64(n)) }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before, size := descriptors(t), 4<<20
	var clients []net.Conn
	for range 8 { // each has bytes under way that its server does not read yet
		client, server, ended := narrow(t, r)
		go client.Write(make([]byte, size))
		clients = append(clients, client)
		if _, err := io.ReadFull(server, make([]byte, size/2)); err != nil {
			t.Fatal(err)
		}
		if len(ended) > 0 {
			t.Fatal("it has ended")
		}
	}
	if n := descriptors(t); n > before+8*4+2 { // four ends each, and one pipe
		t.Errorf("%d descriptors are open, %d before", n, before)
	}
	if n := moved.Load(); n < int64(len(clients)*size/2) {
		t.Errorf("%d bytes are told of while %d have arrived", n, len(clients)*size/2)
	}
}

// No pipe is lost, whatever the pairs go through: bulk that becomes thin while its reader is slow above all.
func TestPipesComeBack(t *testing.T) {
	before := descriptors(t)
	r, err := New(Config{Threads: 1})
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
		} else if time.Since(begin) > time.Minute {
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
