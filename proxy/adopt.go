package proxy

import (
	"context"
	"fmt"
	"net"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// Adopt takes over a connection that another process has handed over, and returns at once. It calls ended once the
// connection has ended. The app's bytes travel verbatim, since a parser would not know its place in the stream. If
// Adopt returns an error it has not changed f.
func (p *Proxy) Adopt(f Handed, ended func()) error {
	conn, err := net.FileConn(f.File)
	if err != nil {
		return fmt.Errorf("proxy: taking a connection over: %w", err)
	}
	c, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return fmt.Errorf("proxy: taking a connection over: a %T", conn)
	}
	f.File.Close()
	o := frame.Opening{Client: frame.Unmap(f.Client), Server: frame.Unmap(f.Server), Number: f.Number, Tag: f.Tag}
	if f.Peer == "" {
		go p.Serve(context.Background(), c, o.Server, ended)
		return nil
	}
	own := parser.Server
	if f.Opener {
		own = parser.Client
		pair := addrPair{p.settings.Load().jobOf(o.Client.Addr(), o.Server.Addr()).Name, o.Client.Addr(), o.Server.Addr()}
		p.numbers.keep(pair, o.Number)
		over := ended
		ended = func() {
			p.numbers.give(pair, o.Number)
			over()
		}
	}
	p.config.Metrics.opens(f.Peer, "taken over")
	log := p.config.Log.With("peer", f.Peer, "client", o.Client, "server", o.Server)
	p.prepare(c)
	end, done := p.gate(c, log)
	k := p.resume(end, f.Peer, log, o, own, f.FIN, func() {
		app.Reset(c)
		done()
		ended()
	})
	if k != nil {
		go k.run()
	}
	return nil
}
