package pollgate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connect returns the two ends of a connection.
func connect(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return accepted.(*net.TCPConn), dialed.(*net.TCPConn)
}

// meet is connect with one end behind poll gates.
func meet(t *testing.T) (*Conn, *net.TCPConn) {
	t.Helper()
	near, far := connect(t)
	c, err := Take(near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		far.Close()
	})
	far.SetDeadline(time.Now().Add(time.Minute))
	return c, far
}

// read reads once, as a *net.TCPConn would.
func (c *Conn) read(p []byte) (n int, err error) { return c.readAnd(p, func() {}) }

// readAnd calls then after a read.
func (c *Conn) readAnd(p []byte, then func()) (n int, err error) {
	raw, _ := c.SyscallConn()
	e := raw.Read(func(fd uintptr) bool {
		n, err = ignoringEINTR(func() (int, error) { return unix.Read(int(fd), p) })
		if err == syscall.EAGAIN {
			return false
		}
		then()
		return true
	})
	if n = max(n, 0); e != nil {
		return n, e
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

type reader struct{ *Conn }

func (r reader) Read(p []byte) (int, error) { return r.read(p) }

// soon fails if f takes long.
func soon(t *testing.T, name string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal(name, "takes for ever")
	}
}

// watched returns the events for which each epoll instance of this process, but the gates, has fd, and the events of
// the gate of bytes that come.
func watched(t *testing.T, c *Conn) (others []string, own uint64) {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		t.Skip("no /proc/self/fdinfo:", err)
	}
	entry := regexp.MustCompile(fmt.Sprintf(`(?m)^tfd: +%d events: +([0-9a-f]+) `, c.fd))
	for _, d := range dir {
		b, _ := os.ReadFile("/proc/self/fdinfo/" + d.Name()) // some have gone
		for _, m := range entry.FindAllSubmatch(b, -1) {
			switch d.Name() {
			case fmt.Sprint(c.out.ep):
				continue
			default:
				others = append(others, string(m[0]))
				continue
			case fmt.Sprint(c.in.ep):
			}
			if own, err = strconv.ParseUint(string(m[1]), 16, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	return others, own
}

// Go's poller hears of a connection only through its gates, and of a disarmed one only while a read waits for it.
func TestGateIsOpenOnlyWhileAReadWaits(t *testing.T) {
	c, far := meet(t)
	check := func(when string, open bool) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for {
			others, own := watched(t, c)
			if len(others) > 0 {
				t.Fatalf("%s: another epoll instance has the connection: %q", when, others)
			}
			if open == (own&unix.EPOLLIN != 0) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the gate lets through %#x", when, own)
			}
			time.Sleep(time.Millisecond)
		}
	}
	check("at first", false)
	far.Write([]byte("ab"))
	p := make([]byte, 1)
	disarm := func() {
		if !c.Disarm() {
			t.Error("it cannot be disarmed")
		}
	}
	soon(t, "reading bytes that have come", func() { c.readAnd(p, disarm) })
	check("after a read that did not wait", false)
	c.read(p)
	got := make(chan error, 1)
	go func() {
		_, err := c.readAnd(p, disarm)
		got <- err
	}()
	check("while a read waits", true)
	far.Write([]byte("c"))
	if err := <-got; err != nil || p[0] != 'c' {
		t.Fatalf("%q, %v", p, err)
	}
	check("after it", false)
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.read(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Time{})
	far.Write([]byte("d"))
	if _, err := c.readAnd(p, disarm); err != nil || p[0] != 'd' {
		t.Fatalf("%q, %v", p, err)
	}
	check("after one that was too late", false)
}

// However bytes come, and however reads and writes wait, nobody is left waiting and the bytes are the same.
func TestBothWays(t *testing.T) {
	c, far := meet(t)
	unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10)
	far.SetReadBuffer(64 << 10)
	const size = 8 << 20
	there, back := make([]byte, size), make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(there)
	rng.Read(back)
	cuts := func(seed uint64, b []byte, f func(p []byte) error) error {
		r := rand.New(rand.NewPCG(seed, 0))
		for len(b) > 0 {
			n := min(len(b), 1<<r.IntN(20))
			if err := f(b[:n]); err != nil {
				return err
			}
			b = b[n:]
			if r.IntN(8) == 0 {
				time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
			}
		}
		return nil
	}
	var all sync.WaitGroup
	fail := func(name string, err error) {
		if err != nil {
			t.Error(name, err)
		}
	}
	all.Go(func() {
		fail("writing:", cuts(1, there, func(p []byte) error {
			if len(p)%2 == 0 {
				_, err := c.Write(p)
				return err
			}
			parts := net.Buffers{nil}
			for b := p; len(b) > 0; {
				n := min(len(b), 1+len(p)/1500)
				parts, b = append(parts, b[:n], nil), b[n:]
			}
			n, err := c.Writev(parts)
			if n != int64(len(p)) && err == nil {
				err = fmt.Errorf("%d of %d bytes", n, len(p))
			}
			return err
		}))
		fail("CloseWrite:", c.CloseWrite())
	})
	all.Go(func() {
		fail("far writing:", cuts(2, back, func(p []byte) error { _, err := far.Write(p); return err }))
		far.CloseWrite()
	})
	all.Go(func() {
		got, err := io.ReadAll(far)
		fail("far reading:", err)
		if !bytes.Equal(got, there) {
			t.Error("other bytes have come there")
		}
	})
	all.Go(func() {
		got, err := io.ReadAll(reader{c})
		fail("reading:", err)
		if !bytes.Equal(got, back) {
			t.Error("other bytes have come back")
		}
	})
	soon(t, "that", all.Wait)
}

// A reader that waits again and again is woken each time, also where an earlier event is still pending, and where it
// takes more than a byte to wake it.
func TestEachWaitEnds(t *testing.T) {
	c, far := meet(t)
	r := rand.New(rand.NewPCG(3, 0))
	p, from := make([]byte, 64), make([]byte, 64)
	raw, _ := c.SyscallConn()
	soon(t, "reading", func() {
		for i := range 5000 {
			n := 1 + r.IntN(len(p))
			minimum := 1 + r.IntN(n)
			raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, minimum) })
			wait := time.Duration(r.IntN(3)*r.IntN(40)) * time.Microsecond
			go func() {
				time.Sleep(wait)
				far.Write(from[:n])
			}()
			if r.IntN(4) == 0 {
				c.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(100)) * time.Microsecond))
			}
			for got := 0; got < n; {
				if n-got < minimum {
					raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1) })
				}
				disarm := func() {}
				if r.IntN(2) == 0 {
					disarm = func() { c.Disarm() }
				}
				m, err := c.readAnd(p[:n-got], disarm)
				got += m
				if errors.Is(err, os.ErrDeadlineExceeded) {
					c.SetReadDeadline(time.Time{})
				} else if err != nil {
					t.Errorf("round %d: %v", i, err)
					return
				}
			}
			c.SetReadDeadline(time.Time{})
		}
	})
}

// Closing ends waits, the peer's end and reset are seen, and nothing is left of the descriptors.
func TestEnds(t *testing.T) {
	descriptors := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc/self/fd:", err)
		}
		n := 0
		for _, e := range d {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			if strings.HasPrefix(to, "socket:") || strings.Contains(to, "eventpoll") {
				n++
			}
		}
		return n
	}
	meet(t)
	before := descriptors()
	for name, x := range map[string]struct {
		end  func(c *Conn, far *net.TCPConn)
		want error // of a read that waits
	}{
		"closed":       {func(c *Conn, _ *net.TCPConn) { c.Close() }, net.ErrClosed},
		"far closes":   {func(_ *Conn, far *net.TCPConn) { far.CloseWrite() }, io.EOF},
		"far resets":   {func(_ *Conn, far *net.TCPConn) { far.SetLinger(0); far.Close() }, syscall.ECONNRESET},
		"too late":     {func(c *Conn, _ *net.TCPConn) { c.SetReadDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"already late": {func(c *Conn, _ *net.TCPConn) { c.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			c, far := meet(t)
			ended := make(chan error, 1)
			go func() {
				_, err := c.read(make([]byte, 1))
				ended <- err
			}()
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			x.end(c, far)
			soon(t, "the end of a read", func() {
				if err := <-ended; !errors.Is(err, x.want) {
					t.Errorf("%v, want %v", err, x.want)
				}
			})
		})
	}
	t.Run("write", func(t *testing.T) {
		c, _ := meet(t)
		ended := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 64<<20))
			ended <- err
		}()
		time.Sleep(20 * time.Millisecond) // it waits by then, or will find it closed
		c.Close()
		soon(t, "the end of a write", func() {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Error("writing to a closed connection:", err)
		}
		if _, err := c.read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Error("reading from a closed connection:", err)
		}
	})
	t.Run("never done", func(t *testing.T) { // as where the kernel has no memory for bytes that could be written
		c, far := meet(t)
		far.Write([]byte("x"))
		raw, _ := c.SyscallConn()
		ended := make(chan error, 1)
		calls := 0
		go func() { ended <- raw.Read(func(uintptr) bool { calls++; return false }) }()
		time.Sleep(20 * time.Millisecond)
		soon(t, "closing", func() { c.Close() })
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if calls > 10 {
			t.Errorf("it was tried %d times", calls)
		}
	})
	t.Run("reset", func(t *testing.T) {
		c, far := meet(t)
		c.SetLinger(0)
		c.Close()
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("far reads %v", err)
		}
	})
	t.Run("orderly", func(t *testing.T) {
		c, far := meet(t)
		c.SetLinger(0)
		c.SetLinger(-1)
		c.Write([]byte("x"))
		c.Close()
		if b, err := io.ReadAll(far); string(b) != "x" || err != nil {
			t.Errorf("far reads %q, %v", b, err)
		}
	})
	if after := descriptors(); after > before {
		t.Errorf("%d descriptors more than before", after-before)
	}
}

// A connection that gets no gate is left as it was.
func TestTakeFails(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	near, far := connect(t)
	defer near.Close()
	defer far.Close()
	next, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(next)
	for room := range 3 {
		unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next + room), Max: limit.Max})
		_, err = Take(near)
		unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
		if !errors.Is(err, syscall.EMFILE) {
			t.Fatalf("with %d descriptors to spare: %v", room, err)
		}
		go far.Write([]byte("x"))
		if n, err := near.Read(make([]byte, 1)); n != 1 {
			t.Fatalf("with %d descriptors to spare the connection is broken: %v", room, err)
		}
	}
}
