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

// serveApart connects c to its server from here. It may return before the connection has ended; ended is called then.
// No parser sees its bytes. why is the reason, for the log.
func (p *Proxy) serveApart(ctx context.Context, c *net.TCPConn, set *Settings, o *frame.Opening, why string, ended func()) {
	log := p.config.Log.With("client", o.Client, "server", o.Server)
	r, err := p.beginBypass()
	if err == nil {
		over := func() {
			p.live.LeaveBypass()
			ended()
		}
		if err = p.relay(ctx, r, c, set, o, over); err == nil {
			return
		}
		defer p.live.LeaveBypass()
	}
	p.config.Metrics.opens("", refusedAs(refusal(err)))
	log.Log(ctx, slog.LevelWarn, "connection reset: "+why+", and it cannot be reached directly", "err", err)
	ended()
}

// relay has r pass bytes on between c and its server. ended is called once the connection has ended, unless there is an
// error.
func (p *Proxy) relay(ctx context.Context, r *relay.Relay, c *net.TCPConn, set *Settings, o *frame.Opening, ended func()) error {
	if err := notSelf(p.config.Own, net.InterfaceAddrs, o.Server); err != nil {
		return err // it would come back here, again and again
	}
	server, err := p.dialApart(ctx, c, set, o)
	if err != nil {
		return err
	}
	begun := make(chan struct{}) // the connection is counted
	err = r.Add(c, server, func(e relay.Ending) {
		go func() {
			<-begun
			how := "closed"
			if e.Reset {
				how = "reset by app"
			}
			p.config.Metrics.endedAs("", how)
			p.config.Metrics.carries("", clientSide(parser.Client), -1)
			p.leavePlace()
			ended()
		}()
	})
	if err != nil {
		app.Reset(server)
		p.leavePlace()
		return err
	}
	p.config.Metrics.opens("", "ok")
	p.config.Metrics.carries("", clientSide(parser.Client), 1)
	close(begun)
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

// enterPlace waits for the place of a server's connection, as long as dialling may take: each holder of a place is
// open, or waits here.
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

// dialApart takes a place, which is the caller's unless there is an error, and dials a connection's server.
func (p *Proxy) dialApart(ctx context.Context, c *net.TCPConn, set *Settings, o *frame.Opening) (server *net.TCPConn, err error) {
	c.SetKeepAliveConfig(keepAlive)
	watched, stop := p.watcher.Watch(ctx, c, o.Server)
	defer stop()
	watched, end := context.WithCancelCause(watched)
	defer end(nil)
	defer context.AfterFunc(p.opening, func() { end(errEnding) })()
	if err = p.enterPlace(watched); err != nil {
		return nil, err
	}
	if server, err = p.dial(watched, set, "", o); err != nil {
		p.leavePlace()
	}
	return server, err
}
