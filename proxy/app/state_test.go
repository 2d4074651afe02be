package app

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// mustTell skips the test where the kernel does not tell whether an app has closed its socket.
func mustTell(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	app, server := AddrOf(a.LocalAddr()), AddrOf(a.RemoteAddr())
	a.Close()
	require.Named(t, "sock_diag", ClosedByApp(app, server), "Linux with CONFIG_INET_DIAG")
}

// The kernel tells an app that has closed its socket from one that has shut one direction down, in any notation of
// addresses.
func TestClosedByApp(t *testing.T) {
	mustTell(t)
	for _, network := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", network)
		if err != nil {
			t.Logf("%s: %v", network, err) // without IPv6
			continue
		}
		defer ln.Close()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		app, server := AddrOf(c.LocalAddr()), AddrOf(c.RemoteAddr())
		closed := func(when string, want bool) {
			t.Helper()
			if got := ClosedByApp(app, server); got != want {
				t.Errorf("%s: closed = %v, want %v", when, got, want)
			}
		}
		closed("while it is open", false)
		c.(*net.TCPConn).CloseWrite()
		if _, err := s.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err)
		}
		closed("after shutdown", false)
		c.Close()
		closed("after close", true)
		if ClosedByApp(server, app) {
			t.Error("the other end counts as closed")
		}
		if l := AddrOf(ln.Addr()); ClosedByApp(l, netip.AddrPortFrom(l.Addr(), 1)) {
			t.Error("a listener of the same port counts as closed")
		}
	}
}
