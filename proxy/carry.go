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

// carry carries a connection of the app behind conn and of stream until it ends. seated is called once the connection has its seat.
func (p *Proxy) carry(conn *net.TCPConn, stream Stream, peer string, log *slog.Logger, o frame.Opening, own parser.Side, seated func()) {
	p.prepare(conn)
	end, done := p.gate(conn, log)
	defer done()
	p.begin(end, stream, peer, log, o, own, func() parser.Calls { return p.calls(end, o, own) }, seated)
}

// prepare sets the options of an app's socket.
func (p *Proxy) prepare(conn *net.TCPConn) {
	conn.SetKeepAliveConfig(keepAlive)
	app.Inline(conn)
	if n := sendBuffer(p.config.Memory, int64(p.live.Len())); n > 0 {
		conn.SetWriteBuffer(n)
	}
}

// begin carries the bytes between an app's end and a stream until both directions have ended. calls returns
// the collectives that the app is seen to call; nil: nobody sees them. seated is called once the connection has its seat.
func (p *Proxy) begin(end *app.Conn, stream Stream, peer string, log *slog.Logger, o frame.Opening, own parser.Side, calls func() parser.Calls, seated func()) {
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
	p.sit(c, own, o, false, seated, func() *passage {
		return p.newPassage(c, protocols, parser.Conn{Job: job.Name, Peer: peer, Client: o.Client, Server: o.Server, Number: o.Number,
			Ranks: job.Ranks, Sums: job.Sums, Calls: calls(), Own: own}, job.LossyAggregates)
	})
}

// resume carries a connection that another process has handed over, at rest, until both directions have ended.
func (p *Proxy) resume(end *app.Conn, peer string, log *slog.Logger, o frame.Opening, own parser.Side, fin bool, seated func()) {
	job := p.settings.Load().jobOf(o.Client.Addr(), o.Server.Addr())
	c := p.connOf(end, peer, job.Name, log, o, own)
	if fin {
		c.KeepFIN()
	}
	p.sit(c, own, o, true, seated, func() *passage {
		return p.newPassage(c, nil, parser.Conn{Job: job.Name, Peer: peer, Client: o.Client, Server: o.Server, Number: o.Number, Own: own}, job.LossyAggregates)
	})
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

// sit carries a connection, which is at rest at first or not, until both directions have ended.
func (p *Proxy) sit(c *path.Conn, own parser.Side, o frame.Opening, rests bool, seated func(), newPassage func() *passage) {
	peer := c.Peer
	values := p.cache.Peer(peer)
	q := p.quotas.Of(peer)
	defer p.quotas.Enter(q)()
	c.Pace, c.Schedule = q.Pace, p.quotas.Schedule(q)
	s := handover.NewSeat(c, handover.Key{Peer: peer, Tag: c.Tag}, own == parser.Client, o)
	if !p.live.Enter(s) {
		c.Abort(frame.ResetByApp)
		return
	}
	defer p.live.Leave(s)
	values.Connected(c.Tag)
	seated()
	p.config.Metrics.carries(peer, clientSide(own), 1)
	defer p.config.Metrics.carries(peer, clientSide(own), -1)
	c.Log.Debug("connection carried", "job", c.Job)
	t := newPassage()
	defer t.release()
	how := ""
	for {
		if !rests {
			if how, rests = t.both(c); !rests {
				break
			}
		}
		stream, err := p.live.Again(s, c, t.unsent())
		if err != nil {
			how = t.abandon(c, err)
			break
		}
		c, rests = p.resumed(c, stream), false
		p.live.GoesOn(s, c)
	}
	if how != handedOver { // else the peer hears nothing of this process's end
		values.Ended(c.Tag)
	}
	p.config.Metrics.endedAs(peer, how)
	c.Log.Debug("connection ended", "how", how)
}

// resumed returns the Conn with which a connection at rest goes on over its next stream.
func (p *Proxy) resumed(c *path.Conn, stream Stream) *path.Conn {
	n := c.Resumed(stream)
	if p.config.PeerCodecs != nil {
		n.PeerCodecs = p.config.PeerCodecs(c.Peer) // its process may be of another version
		n.Shadow = p.trials.Watch(c.Peer, n.PeerCodecs)
	}
	return n
}

// sendBuffer returns the bytes of the kernel's send buffer towards an app where so many other connections are carried; 0: the kernel chooses. An
// app that does not read has the kernel hold a whole buffer, by default 4 MiB, and the kernel's memory for TCP is one for the
// whole host. So memory bounds the buffers of all connections together, and each of the first few has an equal part of it.
func sendBuffer(memory, connections int64) int {
	const few, minimum, maximum = 64, 64 << 10, 4 << 20
	n := memory / max(connections+1, few) / 2 // the kernel doubles it, for its own needs
	if n >= maximum/2 {
		return 0
	}
	return int(max(n, minimum))
}

// calls returns the view of the collectives that the app behind conn calls, nil if nobody sees them.
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

// gate returns the app's end of a connection, behind poll gates if there are any left. done gives them back.
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
