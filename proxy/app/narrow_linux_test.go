package app

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A narrowed socket has a small receive buffer, which grows again once the socket is no longer narrowed; a send buffer
// that was set stays.
func TestNarrowSocket(t *testing.T) {
	for _, segment := range []int{1460, 0} {
		t.Run(fmt.Sprint(segment), func(t *testing.T) { narrowSocket(t, segment) })
	}
}

// A socket whose sender has filled its first window is still narrowed, since a busy proxy may come late; one that
// somebody has read from is not.
func TestNarrowFullSocket(t *testing.T) {
	client, conn, r := connected(t, 1460)
	go client.Write(make([]byte, 1<<20))
	filled := func() (waiting int) {
		raw, err := conn.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { waiting, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
		}
		if err != nil {
			t.Fatal(err)
		}
		return waiting
	}
	for last, same := 0, 0; same < 5 || last == 0; time.Sleep(time.Millisecond) {
		if n := filled(); n == last {
			same++
		} else {
			last, same = n, 0
		}
	}
	read := make([]byte, 1)
	for _, narrow := range []bool{true, false} {
		if r.Narrow(true) != narrow {
			t.Errorf("narrowed %v with %d bytes that wait", !narrow, filled())
		}
		r.Widen()
		if _, err := io.ReadFull(conn, read); err != nil {
			t.Fatal(err)
		}
	}
}

// narrowSocket tries a connection to a listener that offers segments of that size; 0: loopback's, with which no socket
// is narrowed.
func narrowSocket(t *testing.T, segment int) {
	client, conn, r := connected(t, segment)
	option := func(name int) (n int) {
		raw, err := conn.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, name) })
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const send, both = 1, 3
	if segment == 0 {
		if r.Narrow(true) || option(unix.SO_BUF_LOCK) != send {
			t.Errorf("narrowed, locks %d", option(unix.SO_BUF_LOCK))
		}
		return
	}
	if r.Narrow(false) || option(unix.SO_BUF_LOCK) != send {
		t.Errorf("narrow though nobody asked, locks %d", option(unix.SO_BUF_LOCK))
	}
	for i, want := range []bool{true, false} { // the second is of a Reader that goes on with a socket
		if !r.Narrow(want) || option(unix.SO_RCVBUF) != 2*narrowBuffer || option(unix.SO_BUF_LOCK) != both {
			t.Errorf("narrowed, call %d: a buffer of %d, locks %d", i, option(unix.SO_RCVBUF), option(unix.SO_BUF_LOCK))
		}
	}
	if r.Widen(); option(unix.SO_BUF_LOCK) != send {
		t.Errorf("no longer narrowed: locks %d", option(unix.SO_BUF_LOCK))
	}
	const size = 8 << 20
	go client.Write(make([]byte, size))
	b := make([]byte, 64<<10)
	for n := 0; n < size; {
		k, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if n := option(unix.SO_RCVBUF); n < 4*narrowBuffer {
		t.Errorf("after %d bytes that were read at once the buffer has %d", size, n)
	}
	if before := option(unix.SO_RCVBUF); r.Narrow(true) || option(unix.SO_RCVBUF) != before {
		t.Errorf("a socket with %d bytes behind it is narrowed to %d", size, option(unix.SO_RCVBUF))
	}
}

// connected returns a client, the other end of its connection, whose listener offers segments of that size, or 0:
// loopback's, and a Reader of that end.
func connected(t *testing.T, segment int) (client net.Conn, conn *net.TCPConn, r *Reader) {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, segment) })
		return err
	}}
	if segment == 0 {
		config.Control = nil
	}
	config.SetMultipathTCP(false)
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	conn = accepted.(*net.TCPConn)
	conn.SetWriteBuffer(100 << 10)
	r, err = NewReader(Plain(conn), &memory.Allocator{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client, conn, r
}
