package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/internal/wait"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// Serve carries an intercepted connection c to the peer behind which server lies. Serve may return before the
// connection has ended. It calls ended once the connection has ended. If there is no session with the peer, Serve waits
// for one (Config.Hold). If it cannot reach the peer or the server, it resets c: clients that start before their server
// rely on being refused, and an orderly end would look like an answer. If the app leaves before the peer has answered,
// Serve tells the peer. If server is behind no peer, the connection bypasses the tunnel.
func (p *Proxy) Serve(ctx context.Context, c *net.TCPConn, server netip.AddrPort, ended func()) {
	finished := func() {
		app.Reset(c) // after an orderly end this does nothing
		ended()
	}
	o := &frame.Opening{Client: frame.Unmap(app.AddrOf(c.RemoteAddr())), Server: frame.Unmap(server)}
	set := p.settings.Load()
	c.SetLinger(0) // there is no orderly end if this process is killed while c waits
	why := "its destination is behind no peer"
	if peer := set.peerOf(o.Server.Addr()); peer != nil {
		opened, apart := p.open(ctx, c, set, peer, o)
		if !apart {
			p.carry(opened, finished)
			return
		}
		why = "there has been no tunnel to its peer yet"
	}
	p.serveApart(ctx, c, set, o, why, finished)
}

// open has the peer dial the server of c, and returns the connection once it is open; nil: it has ended, or it must go
// to its server directly (apart).
func (p *Proxy) open(ctx context.Context, c *net.TCPConn, set *Settings, peer *Peer, o *frame.Opening) (opened *carried, apart bool) {
	pair := addrPair{set.jobOf(o.Client.Addr(), o.Server.Addr()).Name, o.Client.Addr(), o.Server.Addr()}
	o.Number, o.Tag = p.numbers.take(pair), p.tags.Add(1)
	give := func() { p.numbers.give(pair, o.Number) }
	defer func() {
		if opened == nil {
			give()
		}
	}()
	log := p.config.Log.With("peer", peer.Name, "client", o.Client, "server", o.Server)
	opening := p.live.Begin()
	defer opening.End()
	stream, err := p.ask(ctx, c, set, peer, o, log)
	for errors.Is(err, handover.ErrMoving) {
		moved, missed := opening.Moved(c, *o)
		if missed {
			p.config.Metrics.opens(peer.Name, "failed")
			log.Warn("connection reset: it came while another process was taking over; on_death: hold has such connections wait")
		}
		if moved {
			return nil, false
		}
		stream, err = p.ask(ctx, c, set, peer, o, log)
	}
	if p.config.DirectFirst && errors.Is(err, tunnel.ErrNeverUp) {
		p.config.Metrics.opens(peer.Name, "direct")
		log.Warn("connection goes directly, in the clear: there has been no tunnel to the peer yet (on_first: direct)")
		return nil, true
	}
	if err != nil {
		result := openResult(err)
		p.config.Metrics.opens(peer.Name, result)
		level := slog.LevelWarn
		if errors.Is(err, app.ErrLeft) {
			level = slog.LevelInfo // its own doing
		}
		log.Log(ctx, level, "connection reset: it could not be opened", "reason", result, "err", err)
		return nil, false
	}
	p.config.Metrics.opens(peer.Name, "ok")
	if opened = p.beginAt(c, stream, peer.Name, log, *o, parser.Client, give); opened == nil {
		give = func() {} // begin has given it back
	}
	return opened, false
}

// errNoAnswer is why an opening ends that has waited for as long as it may.
var errNoAnswer = errors.New("proxy: the peer has not answered in time")

// ask has the peer dial the server, and waits for its answer as long as the app does.
func (p *Proxy) ask(ctx context.Context, c *net.TCPConn, set *Settings, peer *Peer, o *frame.Opening, log *slog.Logger) (Stream, error) {
	c.SetKeepAliveConfig(keepAlive)
	ctx, cancel := context.WithTimeoutCause(ctx, p.config.Answer+dialTimeout+set.refusedRetry(), errNoAnswer)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(p.opening, func() { end(errEnding) })()
	asking := p.live.Asking()
	if asking.Err() != nil {
		return nil, context.Cause(asking)
	}
	defer context.AfterFunc(asking, func() { end(context.Cause(asking)) })()
	ctx, stop := p.watcher.Watch(ctx, c, o.Server)
	defer stop()
	for begin := time.Now(); ; {
		m := p.live.MoveOf(peer.Name)
		stream, err := p.config.Open(ctx, peer.Name, o.Append(nil))
		if err != nil && p.live.Moving(ctx, peer.Name, m, err) {
			continue
		}
		if errors.Is(err, tunnel.ErrNotSent) {
			wait.For(ctx, openAgain) // the peer has a new process, say, and has not heard of this connection
			continue
		}
		if !errors.Is(err, tunnel.ErrPeerDown) || p.config.Await == nil {
			return stream, err
		}
		if err := p.await(ctx, peer.Name, p.holds(err)-time.Since(begin), log); err != nil {
			return nil, err
		}
	}
}

const (
	openAgain   = 10 * time.Millisecond // the pause before an opening is tried on the next session, if nothing of it had left
	directAfter = 3 * time.Second       // so that a restart of this proxy, whose peers are there, sends nothing in the clear
	holdNoted   = time.Second           // how long a connection waits before the log says so: the first session comes sooner as a rule
)

// holds returns how long a connection waits for a session that down says is missing.
func (p *Proxy) holds(down error) time.Duration {
	if p.config.DirectFirst && errors.Is(down, tunnel.ErrNeverUp) {
		return min(p.config.Hold, directAfter)
	}
	return p.config.Hold
}

// await waits for a session with a peer.
func (p *Proxy) await(ctx context.Context, peer string, within time.Duration, log *slog.Logger) error {
	within = max(within, 0)
	note := time.AfterFunc(holdNoted, func() {
		log.Warn("no tunnel to the peer is up: connections wait for it", "at_most", p.config.Hold)
	})
	defer note.Stop()
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := p.config.Await(bounded, peer)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, tunnel.ErrPeerDown):
		return fmt.Errorf("%w for %v: is the proxy there running, and which fault do the lines \"no carrier\" name, here and there?", err, p.holds(err))
	}
	return err
}

// openResult names the result of an opening, one of openResults.
func openResult(err error) string {
	var refused *tunnel.RefusedError
	switch {
	case errors.Is(err, tunnel.ErrPeerDown):
		return "peer down"
	case errors.Is(err, app.ErrLeft):
		return "app left"
	case errors.Is(err, errNoAnswer):
		return "no answer"
	case !errors.As(err, &refused):
		return "failed"
	}
	return refusedAs(refused.Code)
}
