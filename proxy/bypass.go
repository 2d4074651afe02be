package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/relay"
)

// serveApart connects c to its server from here, and returns when the connection has ended. No parser sees its bytes. why is the
// reason, for the log.
func (p *Proxy) serveApart(ctx context.Context, c *net.TCPConn, set *Settings, o *frame.Opening, why string) {
	log := p.config.Log.With("client", o.Client, "server", o.Server)
	r, err := p.beginBypass()
	if err == nil {
		defer p.live.LeaveBypass()
		err = p.relay(ctx, r, c, set, o)
	}
	if err != nil {
		p.config.Metrics.opens("", refusedAs(refusal(err)))
		log.Log(ctx, slog.LevelWarn, "connection reset: "+why+", and it cannot be reached directly", "err", err)
		return
	}
}

func (p *Proxy) relay(ctx context.Context, r *relay.Relay, c *net.TCPConn, set *Settings, o *frame.Opening) error {
	if err := notSelf(p.config.Own, net.InterfaceAddrs, o.Server); err != nil {
		return err // it would come back here, again and again
	}
	server, err := p.dialApart(ctx, c, set, o)
	if err != nil {
		return err
	}
	defer p.leavePlace()
	ended := make(chan relay.Ending, 1)
	if err := r.Add(c, server, func(e relay.Ending) { ended <- e }); err != nil {
		app.Reset(server)
		return err
	}
	p.config.Metrics.opens("", "ok")
	p.config.Metrics.carries("", clientSide(parser.Client), 1)
	defer p.config.Metrics.carries("", clientSide(parser.Client), -1)
	e := <-ended
	how := "closed"
	if e.Reset {
		how = "reset by app"
	}
	p.config.Metrics.endedAs("", how)
	return nil
}

// beginBypass notes a connection that is to bypass the tunnel, unless the Proxy is draining.
func (p *Proxy) beginBypass() (*relay.Relay, error) {
	p.bypass.mu.Lock() // so that whoever ends a drain sees the relay
	defer p.bypass.mu.Unlock()
	if !p.live.EnterBypass() {
		return nil, errEnding
	}
	if p.bypass.relay == nil {
		r, err := relay.New(relay.Config{Pipes: p.config.Pipes, Moved: p.config.Metrics.deliverer("")})
		if err != nil {
			p.live.LeaveBypass()
			return nil, err
		}
		p.bypass.relay = r
	}
	return p.bypass.relay, nil
}

// errNoPlace ends a connection that has waited too long for the place of its second descriptor.
var errNoPlace = errors.New("proxy: too many connections: raise the limits of descriptors (ulimit -n, LimitNOFILE=) and of memory")

// enterPlace waits for the place of a server's connection, as long as dialling may take: each holder of a place is open, or waits here.
func (p *Proxy) enterPlace(ctx context.Context) error {
	if p.config.Places == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errNoPlace)
	defer cancel()
	if !p.config.Places.Enter(ctx) {
		return context.Cause(ctx)
	}
	return nil
}

func (p *Proxy) leavePlace() {
	if p.config.Places != nil {
		p.config.Places.Leave()
	}
}

// dialApart takes a place, which is the caller's unless there is an error, and dials a connection's server. It does so on a
// goroutine of its own, whose stack ends with it, and not on the one that waits for as long as the connection lasts.
func (p *Proxy) dialApart(ctx context.Context, c *net.TCPConn, set *Settings, o *frame.Opening) (server *net.TCPConn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.SetKeepAliveConfig(keepAlive)
		watched, stop := p.watcher.Watch(ctx, c, o.Server)
		defer stop()
		watched, end := context.WithCancelCause(watched)
		defer end(nil)
		defer context.AfterFunc(p.opening, func() { end(errEnding) })()
		if err = p.enterPlace(watched); err != nil {
			return
		}
		if server, err = p.dial(watched, set, "", o); err != nil {
			p.leavePlace()
		}
	}()
	<-done
	return server, err
}
