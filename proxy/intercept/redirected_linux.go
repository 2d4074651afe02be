package intercept

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// addrsOf returns the addresses of listeners.
func addrsOf(listeners []*net.TCPListener) []netip.AddrPort {
	var all []netip.AddrPort
	for _, l := range listeners {
		all = append(all, addrPort(l.Addr()))
	}
	return all
}

// serveRedirected accepts the connections that are redirected to listeners until ctx ends. A connection without a known
// target came to the listener itself, and is reset.
func serveRedirected(ctx context.Context, listeners []*net.TCPListener, places Places, log *slog.Logger,
	target func(*net.TCPConn) (netip.AddrPort, error), handle Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	take := func(c *net.TCPConn, ended func()) {
		server, err := target(c)
		if err != nil {
			log.Warn("intercept: connection refused", "client", c.RemoteAddr().String(), "err", err)
			reset(c)
			ended()
			return
		}
		handle(c, server, ended)
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- acceptAll(ctx, l, places, log, take) }()
	}
	var err error
	for range listeners {
		err = errors.Join(err, <-failed)
		if err != nil {
			cancel() // both families are asked for
		}
	}
	return err
}

// keepAlive calls refresh, whose errors say their consequence, until ctx ends. failed, unless it is nil, is told of
// each error, and of nil when the next refresh succeeds.
func keepAlive(ctx context.Context, refresh func() error, failed func(error), log *slog.Logger) {
	tick := time.NewTicker(Refresh)
	defer tick.Stop()
	healthy := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := refresh()
		if err != nil {
			log.Error("intercept: not refreshed", "err", err)
		}
		if failed != nil && (err != nil || !healthy) {
			failed(err)
		}
		healthy = err == nil
	}
}
