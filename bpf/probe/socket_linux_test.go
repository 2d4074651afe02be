//go:build amd64 || arm64

package probe

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The socket of a connection is found as soon as its other end is connected, accepted or not.
func TestNewSocketsAreFound(t *testing.T) {
	t.Parallel()
	require.Root(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	for i := range 3000 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = socketInode(address(c.RemoteAddr()), []netip.AddrPort{address(c.LocalAddr())})
		if err != nil && !errors.Is(err, ErrNotAccepted) {
			t.Errorf("connection %d: %v", i, err)
		}
		c.Close()
	}
}

// A socket that somebody has bound, and does not connect, is taken for no connection's.
func TestSocketsThatAreBoundAreLeftOut(t *testing.T) {
	t.Parallel()
	require.Root(t)
	for name, a := range map[string]struct {
		family       int
		bound        syscall.Sockaddr
		listen, dial string
	}{
		"IPv4":                     {syscall.AF_INET, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, "127.0.0.1:0", "127.0.0.1"},
		"IPv6":                     {syscall.AF_INET6, &syscall.SockaddrInet6{Addr: [16]byte{15: 1}}, "[::1]:0", "::1"},
		"IPv4 in a socket of IPv6": {syscall.AF_INET6, &syscall.SockaddrInet6{}, "[::]:0", "127.0.0.1"},
	} {
		bound, err := syscall.Socket(a.family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err == nil {
			defer syscall.Close(bound)
			err = syscall.Bind(bound, a.bound)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l, err := net.Listen("tcp", a.listen)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(a.dial), address(l.Addr()).Port()).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		for end, conn := range map[string]net.Conn{"the caller's": c, "the listener's": accepted} {
			raw, err := conn.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var s syscall.Stat_t
			if err := raw.Control(func(fd uintptr) { err = syscall.Fstat(int(fd), &s) }); err != nil {
				t.Fatal(err)
			}
			if inode, err := socketInode(address(conn.LocalAddr()), []netip.AddrPort{address(conn.RemoteAddr())}); err != nil || uint64(inode) != s.Ino {
				t.Errorf("%s, %s socket: found %d (%v), want %d", name, end, inode, err, s.Ino)
			}
		}
	}
}

// A socket that is bound to an interface is found.
func TestSocketOfAnInterfaceIsFound(t *testing.T) {
	t.Parallel()
	require.Root(t)
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(host), 0).String())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		bind := func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) {
				err = syscall.SetsockoptString(int(fd), syscall.SOL_SOCKET, syscall.SO_BINDTODEVICE, "lo")
			}), err)
		}
		c, err := (&net.Dialer{Control: bind}).Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if inode, err := socketInode(address(c.LocalAddr()), []netip.AddrPort{address(c.RemoteAddr())}); err != nil || inode == 0 {
			t.Errorf("%s: inode %d, %v", host, inode, err)
		}
	}
}
