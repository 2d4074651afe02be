package intercept

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// A control sets options of a socket before it is bound: a net.Dialer's Control.
type control = func(network, address string, c syscall.RawConn) error

// listen opens a TCP listener. Multipath TCP, on by default in Go, stays off: the connections are local, and getsockopt
// of an MPTCP socket does not know SO_ORIGINAL_DST. Connections that it accepts end by an RST unless their handler sets
// another linger. set sets options of the socket first; nil: none.
func listen(network string, addr netip.AddrPort, set control) (*net.TCPListener, error) {
	lc := net.ListenConfig{Control: set}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), network, addr.String())
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("intercept: listen %s: the port is in use: stop the program that holds it (ss -ltnp) or choose another", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("intercept: listen %s: this host has no such address: see ip address", addr)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("intercept: listen %s: a port under 1024 needs CAP_NET_BIND_SERVICE: choose a higher one", addr)
	case err != nil:
		return nil, fmt.Errorf("intercept: %w", err)
	}
	t := l.(*net.TCPListener)
	if err := lingerNot(t); err != nil {
		t.Close()
		return nil, fmt.Errorf("intercept: listen %s: %w", addr, err)
	}
	return t, nil
}

// reset closes c so that its peer sees RST, not the end of a stream.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
