package paramserver

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/recorded"
)

// taps keeps all that passes on the connections that are dialled through it.
type taps struct {
	mu  sync.Mutex
	all []*recorded.Connection
}

// dial implements pslitesim.Config.Dial.
func (t *taps) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &recorded.Connection{Client: addrOf(conn.LocalAddr()), Server: addrOf(conn.RemoteAddr())}
	t.all = append(t.all, c)
	return &tap{conn, t, c}, nil
}

func addrOf(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// A tap is a dialled connection.
type tap struct {
	net.Conn
	taps *taps
	kept *recorded.Connection
}

func (t *tap) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.taps.mu.Lock()
	defer t.taps.mu.Unlock()
	t.kept.FromServer = append(t.kept.FromServer, b[:n]...)
	return n, err
}

func (t *tap) Write(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	t.taps.mu.Lock()
	defer t.taps.mu.Unlock()
	t.kept.FromClient = append(t.kept.FromClient, b[:n]...)
	return n, err
}
