package pair

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

// start returns a pair that ends with the test.
func start(t testing.TB, cfg Config) *Pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// listen returns a server's listener.
func listen(t testing.TB) *net.TCPListener {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func forward(t testing.TB, p *Pair, ln *net.TCPListener) netip.AddrPort {
	t.Helper()
	addr, err := p.Forward(ln.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// connect returns both ends of a connection through the pair, or directly where addr is the listener's own.
func connect(t testing.TB, addr netip.AddrPort, ln *net.TCPListener) (client, server *net.TCPConn) {
	t.Helper()
	client, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(addr))
	if err != nil {
		t.Fatal(err)
	}
	ln.SetDeadline(time.Now().Add(time.Minute))
	if server, err = ln.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// Two apps cannot tell the whole path, tunnel included, from a plain connection.
func TestConn(t *testing.T) {
	for name, cfg := range map[string]Config{"parsers": {}, "verbatim": {Verbatim: true}} {
		t.Run(name, func(t *testing.T) {
			p, ln := start(t, cfg), listen(t)
			addr := forward(t, p, ln)
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				client, server := connect(t, addr, ln)
				return client, server, func() { client.Close(); server.Close() }, nil
			})
		})
	}
}
