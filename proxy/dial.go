package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// dialTimeout is how long the far proxy tries to reach the app that it was asked for. Linux itself would try for two
// minutes, which a job's start-up does not wait for.
const dialTimeout = 20 * time.Second

// dial connects to an app, once: a second connection could use up a listening socket that accepts once (Gloo before May
// 2023). Where this host may play the client it does. A client's port that a connection of a moment ago still has here,
// or that is below 1024 and takes a capability to bind, becomes another: the kernel has sent nothing then.
func (p *Proxy) dial(ctx context.Context, set *Settings, peer string, o *frame.Opening) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive, FallbackDelay: -1, Control: p.config.Control}
	d.SetMultipathTCP(false)
	if p.config.AsClient == nil || !set.mayPlay(peer, o, net.InterfaceAddrs) {
		return dial(ctx, &d, o.Server)
	}
	d.Control, d.LocalAddr = p.config.AsClient, net.TCPAddrFromAddrPort(o.Client)
	c, err := dial(ctx, &d, o.Server)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.Client.Addr(), 0))
		return dial(ctx, &d, o.Server)
	}
	return c, err
}

func dial(ctx context.Context, d *net.Dialer, a netip.AddrPort) (*net.TCPConn, error) {
	c, err := d.DialContext(ctx, "tcp", a.String())
	if err != nil {
		return nil, err
	}
	t := c.(*net.TCPConn)
	t.SetLinger(0) // no orderly end if this process is killed before the connection is carried
	return t, nil
}

// refusal returns the code that tells the peer of err.
func refusal(err error) tunnel.Code {
	switch {
	case errors.Is(err, errDenied):
		return frame.RefusedDenied
	case errors.Is(err, syscall.ECONNREFUSED):
		return frame.RefusedByServer
	case errors.Is(err, handover.ErrMoving):
		return frame.RefusedMoving
	case errors.Is(err, errEnding), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return frame.RefusedBusy
	}
	return frame.RefusedUnreachable
}

// refusedAs names a code of refusals, for metrics and logs.
func refusedAs(code tunnel.Code) string {
	switch code {
	case frame.RefusedDenied:
		return "denied"
	case frame.RefusedByServer:
		return "refused"
	case frame.RefusedUnreachable:
		return "unreachable"
	}
	return "failed"
}
