package proxy

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
)

// A watched protocol gives each parser.Conn that it is asked for to conns.
type watched struct {
	pathtest.Toy
	conns chan parser.Conn
}

func (w watched) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	w.conns <- c
	return w.Toy.New(c)
}

// callsOf are the calls that somebody sees of the app at the other end of a connection.
type callsOf struct {
	app uint16         // port of the app
	far netip.AddrPort // the app's other end, as the app sees it
}

// portOfPeer returns the port of a connection's other end.
func portOfPeer(c syscall.Conn) (port uint16) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		switch a, _ := syscall.Getpeername(int(fd)); a := a.(type) {
		case *syscall.SockaddrInet4:
			port = uint16(a.Port)
		case *syscall.SockaddrInet6:
			port = uint16(a.Port)
		}
	})
	return port
}

// Of returns one call, by the ports.
func (c *callsOf) Of(dst []parser.Call, _ uint32) ([]parser.Call, bool) {
	return append(dst, parser.Call{Source: uint64(c.app), Buffer: uint64(c.far.Port())}), true
}

func (*callsOf) Proved()             {}
func (*callsOf) Contradicted(string) {}

// The parsers of each proxy are given the calls of the app beside it, which is named by its socket.
func TestParsersSeeTheCallsOfTheOwnApp(t *testing.T) {
	w := watched{conns: make(chan parser.Conn, 2)}
	p := newPairWith(t, func(_ string, c *Config) {
		c.Calls = func(conn syscall.Conn, far netip.AddrPort) parser.Calls { return &callsOf{portOfPeer(conn), far} }
	}, []parser.Protocol{w})
	client, err := net.Dial("tcp", p.entry.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := p.target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := client.Write([]byte{0}); err != nil { // parsers are made when bytes come
		t.Fatal(err)
	}
	for range 2 {
		c := <-w.conns
		socket, far := client, c.Server
		if c.Own == parser.Server {
			socket, far = server, c.Client
		}
		calls, _ := c.Calls.Of(nil, 1)
		want := parser.Call{Source: uint64(app.AddrOf(socket.LocalAddr()).Port()), Buffer: uint64(far.Port())}
		if len(calls) != 1 || calls[0] != want {
			t.Errorf("the %s's proxy asks for the app of %+v, want %+v", c.Own, calls, want)
		}
	}
}
