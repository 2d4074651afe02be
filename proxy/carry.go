package proxy

import (
	"log/slog"
	"net"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/path"
)

// beginAt calls begin for the app at the other end of conn.
func (p *Proxy) beginAt(conn *net.TCPConn, stream Stream, peer string, log *slog.Logger, o frame.Opening, own parser.Side, ended func()) *carried {
	p.prepare(conn)
	end, done := p.gate(conn, log)
	return p.begin(end, stream, peer, log, o, own, func() parser.Calls { return p.calls(end, o, own) }, func() {
		done()
		ended()
	})
}

// prepare sets the options of an app's socket.
func (p *Proxy) prepare(conn *net.TCPConn) {
	conn.SetKeepAliveConfig(keepAlive)
	app.Inline(conn)
	if n := sendBuffer(p.config.Memory, int64(p.live.Len())); n > 0 {
		conn.SetWriteBuffer(n)
	}
}

// begin returns the connection between an app's end and a stream, with its seat, or nil if the connection has ended.
// calls returns the view of the collectives that the app calls, or nil if nobody sees them. ended is called once the
// connection has ended.
func (p *Proxy) begin(end *app.Conn, stream Stream, peer string, log *slog.Logger, o frame.Opening, own parser.Side, calls func() parser.Calls, ended func()) *carried {
	set, protocols := p.settings.Load(), p.config.Protocols
	job := set.jobOf(o.Client.Addr(), o.Server.Addr())
	if own == parser.Server {
		switch {
		case set.stranger(peer, o.Client.Addr()):
			log.Warn("peer names a client that lies behind another peer: the connection is of no job, and travels verbatim from here")
			job, protocols = Job{}, nil
		case job.Name != "" && !set.behind(peer, o.Client.Addr()):
			log.Warn("peer names a client that lies in none of its networks: the connection is of no job; add the network to the peer if it is the job's", "job", job.Name)
			job = Job{}
		}
	}
	c := p.connOf(end, peer, job.Name, log, o, own)
	c.Stream = stream
	return p.sit(&carried{proxy: p, conn: c, own: own, ended: ended, newPassage: func() *passage {
		return p.newPassage(c, protocols, parser.Conn{Job: job.Name, Peer: peer, Client: o.Client, Server: o.Server, Number: o.Number,
			Ranks: job.Ranks, Sums: job.Sums, Calls: calls(), Own: own}, job.LossyAggregates)
	}}, o)
}

// resume returns a connection at rest that another process has handed over, with its seat, or nil if the connection has
// ended. ended is called once the connection has ended.
func (p *Proxy) resume(end *app.Conn, peer string, log *slog.Logger, o frame.Opening, own parser.Side, fin bool, ended func()) *carried {
	job := p.settings.Load().jobOf(o.Client.Addr(), o.Server.Addr())
	c := p.connOf(end, peer, job.Name, log, o, own)
	if fin {
		c.KeepFIN()
	}
	return p.sit(&carried{proxy: p, conn: c, own: own, rests: true, ended: ended, newPassage: func() *passage {
		return p.newPassage(c, nil, parser.Conn{Job: job.Name, Peer: peer, Client: o.Client, Server: o.Server, Number: o.Number, Own: own}, job.LossyAggregates)
	}}, o)
}

// connOf returns the Conn of a connection, without a stream.
func (p *Proxy) connOf(end *app.Conn, peer, job string, log *slog.Logger, o frame.Opening, own parser.Side) *path.Conn {
	values := p.cache.Peer(peer)
	c := &path.Conn{Env: p.env, App: end, Peer: peer, Job: job, Log: log, Gone: make(chan struct{}),
		Tag: frame.Tag{Number: o.Tag, Mine: own == parser.Client}, SendShare: &values.Sending, ReceiveShare: &values.Receiving}
	if c.From, c.To = o.Client.Addr(), o.Server.Addr(); own == parser.Server {
		c.From, c.To = c.To, c.From
	}
	if p.config.Values > 0 {
		c.Values = values
	}
	if p.config.PeerCodecs != nil {
		c.PeerCodecs = p.config.PeerCodecs(peer)
	}
	c.Shadow = p.trials.Watch(peer, c.PeerCodecs)
	return c
}

// sit gives a connection its seat and returns k. If the Proxy takes no more connections it ends the connection and
// returns nil.
func (p *Proxy) sit(k *carried, o frame.Opening) *carried {
	c := k.conn
	k.leave = p.quotas.Enter(p.quotas.Of(c.Peer))
	k.seat = handover.NewSeat(c, handover.Key{Peer: c.Peer, Tag: c.Tag}, k.own == parser.Client, o)
	if !p.live.Enter(k.seat) {
		c.Abort(frame.ResetByApp)
		k.leave()
		k.ended()
		return nil
	}
	p.cache.Peer(c.Peer).Connected(c.Tag)
	p.config.Metrics.carries(c.Peer, clientSide(k.own), 1)
	c.Log.Debug("connection carried", "job", c.Job)
	return k
}

// sendBuffer returns the size, in bytes, of the kernel's send buffer towards an app while so many other connections are
// carried; 0: the kernel chooses. If an app does not read, the kernel holds a whole buffer, 4 MiB by default, of the
// memory for TCP that the whole host shares. So memory bounds the buffers of all connections together, and each of the
// first few connections has an equal part of it.
func sendBuffer(memory, connections int64) int {
	const few, minimum, maximum = 64, 64 << 10, 4 << 20
	n := memory / max(connections+1, few) / 2 // the kernel doubles it, for its own needs
	if n >= maximum/2 {
		return 0
	}
	return int(max(n, minimum))
}

// calls returns the view of the collectives that the app at the other end of conn calls, or nil if nobody sees them.
func (p *Proxy) calls(conn *app.Conn, o frame.Opening, own parser.Side) parser.Calls {
	if p.config.Calls == nil {
		return nil
	}
	far := o.Server
	if own == parser.Server {
		far = o.Client
	}
	return p.config.Calls(conn, far)
}

// gate returns the app's end of a connection, behind poll gates if there are any left. done gives the gates back.
func (p *Proxy) gate(conn *net.TCPConn, log *slog.Logger) (end *app.Conn, done func()) {
	done = func() { p.gated.Add(-1) }
	if p.gated.Add(1) <= int64(p.config.PollGates) {
		gated, err := app.Gate(conn)
		if err == nil {
			return gated, done
		}
		log.Debug("a connection has no poll gates, and wakes this proxy more often", "err", err)
	}
	done()
	return app.Plain(conn), func() {}
}
