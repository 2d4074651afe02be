package proxy

import (
	"net"
	"net/netip"
	"slices"
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

// callsOf are the calls that somebody sees of the app with a socket.
type callsOf struct {
	own     netip.AddrPort
	remotes []netip.AddrPort
}

func (*callsOf) Of(dst []parser.Call, _ uint32) []parser.Call { return dst }
func (*callsOf) Contradicted(string)                          {}

// The parsers of each proxy are given the calls of the app beside it, which is named by its socket.
func TestParsersSeeTheCallsOfTheOwnApp(t *testing.T) {
	w := watched{conns: make(chan parser.Conn, 2)}
	p := newPairWith(t, func(_ string, c *Config) {
		c.Calls = func(own netip.AddrPort, remotes ...netip.AddrPort) parser.Calls { return &callsOf{own, remotes} }
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
	for range 2 {
		c := <-w.conns
		socket, far := client, c.Server
		if c.Own == parser.Server {
			socket, far = server, c.Client
		}
		calls, ok := c.Calls.(*callsOf)
		if !ok {
			t.Fatalf("the parsers of the %s's proxy are given the calls %v", c.Own, c.Calls)
		}
		want := []netip.AddrPort{app.AddrOf(socket.RemoteAddr()), far}
		if calls.own != app.AddrOf(socket.LocalAddr()) || !slices.Equal(calls.remotes, want) {
			t.Errorf("the %s's proxy asks for the socket %v to one of %v, want %v to one of %v", c.Own, calls.own, calls.remotes, socket.LocalAddr(), want)
		}
	}
}
