package proxy

import (
	"log/slog"
	"net"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
)

// Two apps cannot tell a pair of proxies from a plain connection, whether their bytes are understood or not.
func TestConn(t *testing.T) {
	for name, protocols := range map[string][]parser.Protocol{"verbatim": nil, "toy": {pathtest.Toy{}}, "toy, flow control": {pathtest.Toy{Flow: true}}} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, protocols)
			if protocols != nil {
				// One of nettest's writers sends zeros until all buffers are full, and each eight zeros are a message:
				// small buffers suffice.
				p.mu.Lock()
				p.narrow = 128 << 10
				p.mu.Unlock()
			}
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				client, server := p.connect(t)
				if p.narrow > 0 {
					for _, c := range []*net.TCPConn{client, server} {
						c.SetReadBuffer(p.narrow)
						c.SetWriteBuffer(p.narrow)
					}
				}
				return client, server, func() { client.Close(); server.Close() }, nil
			})
		})
	}
}

// carryAt carries a connection between an app's end and a stream until it has ended.
func (p *Proxy) carryAt(end *app.Conn, stream Stream, peer string, log *slog.Logger, o frame.Opening, own parser.Side, calls func() parser.Calls, ended func()) {
	done := make(chan struct{})
	p.carry(p.begin(end, stream, peer, log, o, own, calls, ended), func() { close(done) })
	<-done
}
