package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/inquiry"
	"github.com/gradproxy/gradproxy/proxy/internal/wait"
)

// An Incoming is an opening that waits for its answer. *tunnel.Incoming implements it.
type Incoming = handover.Incoming

// TakesPlace reports whether a peer's opening may use descriptors, so that the caller must get one of Config.Places for
// it. The Proxy bounds the other openings itself: at most one at a time resumes a connection, which has its place
// already, and at most one at a time asks for a peer's connections to rest.
func TakesPlace(opening []byte) bool {
	return len(opening) == 0 || opening[0] != frame.OpeningResume && opening[0] != frame.OpeningRest
}

// Accept answers a peer's opening. If the peer may have the server dialled, Accept dials it at once, calls accept to
// answer yes, and carries the connection. A server that refuses is dialled again for a while (Settings.RefusedRetry),
// until the peer withdraws, so the server sees at most one connection. Accept may return before the connection has
// ended. It calls ended once the connection has ended.
func (p *Proxy) Accept(peer string, opened []byte, in Incoming, accept func() Stream, ended func()) {
	p.carry(p.accept(peer, opened, in, accept), ended)
}

// accept does the part of Accept until the connection is open. It returns nil if there is no connection, or if the
// connection has ended.
func (p *Proxy) accept(peer string, opened []byte, in Incoming, accept func() Stream) *carried {
	if len(opened) > 0 {
		switch opened[0] {
		case frame.OpeningValues:
			defer p.quotas.Enter(p.quotas.Of(peer))()
			p.cache.Accept(peer, opened, in.Refuse, func() cache.Stream { return accept() })
			return nil
		case frame.OpeningResume:
			p.live.AcceptResumed(peer, opened, in, accept)
			return nil
		case frame.OpeningRest:
			p.live.AcceptRest(peer, in, accept)
			return nil
		case frame.OpeningExcerpt:
			inquiry.Excerpt.Answer(peer, p.config.Excerpt, in.Refuse, accept)
			return nil
		case frame.OpeningView:
			inquiry.View.Answer(peer, p.config.View, in.Refuse, accept)
			return nil
		}
	}
	o, err := frame.ParseOpening(opened)
	if err != nil {
		in.Refuse(frame.RefusedBadOpening, err.Error())
		return nil
	}
	log := p.config.Log.With("peer", peer, "client", o.Client, "server", o.Server)
	opening := p.live.Begin()
	defer opening.End()
	c, err := p.reach(in, peer, &o, log)
	select {
	case <-in.Done():
		if c != nil {
			app.Reset(c)
		}
		log.Debug("peer has withdrawn its opening")
		return nil
	default:
	}
	if err != nil {
		code := refusal(err)
		log.Warn("peer's connection refused", "reason", refusedAs(code), "err", err)
		in.Refuse(code, err.Error())
		return nil
	}
	return p.beginAt(c, accept(), peer, log, o, parser.Server, func() { app.Reset(c) })
}

// Pauses before a refused dial is repeated, doubled from the first to the last.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Second
)

// reach dials a server for a peer. One that refuses is dialled again: the app beside the peer was not refused, since
// the proxy there had to accept its connection before anything was known of the server, and so does not try again
// itself as it would have. No refused dial uses up a socket that accepts once.
func (p *Proxy) reach(in Incoming, peer string, o *frame.Opening, log *slog.Logger) (*net.TCPConn, error) {
	ctx, end := context.WithCancelCause(p.opening)
	defer end(nil)
	asking := p.live.Asking()
	if asking.Err() != nil {
		return nil, context.Cause(asking)
	}
	defer context.AfterFunc(asking, func() { end(context.Cause(asking)) })()
	go func() {
		select {
		case <-in.Done():
			end(app.ErrLeft)
		case <-ctx.Done():
		}
	}()
	begin := time.Now()
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		set := p.settings.Load() // the peer's allow-list may have changed
		if err := allowed(set.mayDial(peer), p.config.Own, net.InterfaceAddrs, o.Server); err != nil {
			return nil, err
		}
		if ctx.Err() != nil { // before the server's one accept is used up
			return nil, context.Cause(ctx)
		}
		c, err := p.dial(ctx, set, peer, o)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return c, err
		}
		p.config.Metrics.dialRefused(peer)
		left := set.refusedRetry() - time.Since(begin)
		if left <= 0 {
			return nil, err
		}
		if pause == firstRetry {
			log.Info("the server refuses connections: it is dialled again", "reason", "refused", "for", left.Round(time.Second))
		}
		wait.For(ctx, min(pause, left))
		p.quotas.Of(peer).AwaitDial(ctx)
	}
}
