package intercept

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
)

// A Forward listens on one address and hands each connection on with one target.
type Forward struct {
	target   netip.AddrPort
	places   Places
	log      *slog.Logger
	listener *net.TCPListener
}

// NewForward opens the listener. A nil log discards.
func NewForward(addr, target netip.AddrPort, places Places, log *slog.Logger) (*Forward, error) {
	l, err := listen("tcp", addr, nil)
	if err != nil {
		return nil, err
	}
	return &Forward{target: target, places: places, log: orDiscard(log), listener: l}, nil
}

// Inherit returns a Forward with a listener that another process has opened. A nil log discards.
func Inherit(l *net.TCPListener, target netip.AddrPort, places Places, log *slog.Logger) *Forward {
	return &Forward{target: target, places: places, log: orDiscard(log), listener: l}
}

// Listener returns the listener. Once Serve has ended, connections wait on another descriptor of it.
func (f *Forward) Listener() *net.TCPListener { return f.listener }

// Reopened returns a Forward like f with another listener.
func (f *Forward) Reopened(l *net.TCPListener) *Forward { return Inherit(l, f.target, f.places, f.log) }

// Addr returns the listener's address.
func (f *Forward) Addr() netip.AddrPort { return addrPort(f.listener.Addr()) }

// Serve accepts connections until ctx ends, then closes the listener and returns nil. It does not wait for handlers.
func (f *Forward) Serve(ctx context.Context, handle Handler) error {
	return acceptAll(ctx, f.listener, f.places, f.log, func(c *net.TCPConn, ended func()) { handle(c, f.target, ended) })
}

// Close closes the listener of a Forward that is not served.
func (f *Forward) Close() error { return f.listener.Close() }

// addrPort returns a TCP address with IPv4 in its own form, never mapped into IPv6.
func addrPort(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
