package proxy

import (
	"context"
	"errors"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"log/slog"
	"net"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/relay"
)

// A passer passes on connections that have no peer to go through. It is made when the first one comes.
type passer struct {
	relay *relay.Relay
	count int // of connections that are, or are about to be; with the Proxy's live ones they are what a drain waits for
}

// pass connects c to its server, which is behind no peer, and returns when the connection has ended. What it carries is
// nobody's tensors: no parser sees it.
func (p *Proxy) pass(ctx context.Context, c *net.TCPConn, set *Settings, o *frame.Opening) {
	log := p.Log.With("client", o.Client, "server", o.Server)
	r, err := p.beginPass()
	if err == nil {
		defer p.endPass()
		err = p.passBy(ctx, r, c, set, o)
	}
	if err != nil {
		p.Metrics.opens("", refusedAs(refusal(err)))
		log.Log(ctx, slog.LevelWarn, "connection reset: its destination is behind no peer, and cannot be reached", "err", err)
		return
	}
}

func (p *Proxy) passBy(ctx context.Context, r *relay.Relay, c *net.TCPConn, set *Settings, o *frame.Opening) error {
	if err := notSelf(p.Own, net.InterfaceAddrs, o.Server); err != nil {
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
	p.Metrics.opens("", "ok")
	p.Metrics.carries("", clientSide(parser.Client), 1)
	defer p.Metrics.carries("", clientSide(parser.Client), -1)
	e := <-ended
	how := "closed"
	if e.Reset {
		how = "reset by app"
	}
	p.Metrics.endedAs("", how)
	return nil
}

// beginPass notes a connection that is to be passed on, unless the Proxy is draining.
func (p *Proxy) beginPass() (*relay.Relay, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return nil, errEnding
	}
	if p.passer.relay == nil {
		r, err := relay.New(relay.Config{Pipes: p.Pipes, Moved: p.Metrics.deliverer("")})
		if err != nil {
			return nil, err
		}
		p.passer.relay = r
	}
	p.passer.count++
	return p.passer.relay, nil
}

func (p *Proxy) endPass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passer.count--
	p.drained()
}

// closePasses resets what is passed on and returns how many connections that were.
func (p *Proxy) closePasses() (n int) {
	p.mu.Lock()
	r, n := p.passer.relay, p.passer.count
	p.mu.Unlock()
	if r != nil {
		r.Close()
	}
	return n
}

// errNoPlace is why a connection is not passed on that has waited too long for the place of its second descriptor.
var errNoPlace = errors.New("proxy: too many connections: raise the limit of descriptors (ulimit -n, LimitNOFILE=)")

// enterPlace waits for the place of a server's connection, as long as dialling may take: whoever holds one is open, or waits here.
func (p *Proxy) enterPlace(ctx context.Context) error {
	if p.Places == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errNoPlace)
	defer cancel()
	if !p.Places.Enter(ctx) {
		return context.Cause(ctx)
	}
	return nil
}

func (p *Proxy) leavePlace() {
	if p.Places != nil {
		p.Places.Leave()
	}
}

// dialApart takes a place, which is the caller's unless there is an error, and dials a connection's server. It does so on a
// goroutine of its own: the stack that this takes is not one that waits for as long as the connection lasts.
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
