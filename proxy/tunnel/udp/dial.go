package udp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// A Dialer makes connections. The zero Dialer works.
type Dialer struct {
	// Buffers gives a socket larger buffers than this process may; nil: nothing does.
	Buffers func(fd int) error
}

// Dial is the zero Dialer's.
func Dial(ctx context.Context, address string) (*Conn, error) { return Dialer{}.Dial(ctx, address) }

// Dial makes a connection to address, "host:port". It waits for the other side's welcome, until ctx ends. Of a host
// with several addresses each is tried in turn.
func (d Dialer) Dial(ctx context.Context, address string) (*Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("udp: %w", err)
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return d.dial(ctx, address)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("udp: %w", err)
	}
	var all []string
	for _, ip := range ips {
		all = append(all, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return d.dialEach(ctx, all)
}

// dialEach dials addresses until one welcomes. Each has an equal part of the time that is left for it and the addresses
// behind it. The error is the first one's.
func (d Dialer) dialEach(ctx context.Context, addresses []string) (*Conn, error) {
	var first error
	for i, address := range addresses {
		within, cancel := ctx, func() {}
		if deadline, ok := ctx.Deadline(); ok {
			within, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addresses)-i))
		}
		c, err := d.dial(within, address)
		cancel()
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

func (d Dialer) dial(ctx context.Context, address string) (*Conn, error) {
	s, remote, err := connected(ctx, address, d.Buffers)
	if err != nil {
		return nil, err
	}
	c := &Conn{nonce: newNonce(), closed: make(chan struct{}), batch: newBatch(), address: address, buffers: d.Buffers}
	c.moving.begin(c.move)
	c.socket.Store(s)
	c.remote.Store(&remote)
	c.way.moveTo(s, netip.AddrPort{}, nil)
	if c.id, err = s.exchange(ctx, c.nonce); err != nil {
		s.Close()
		return nil, fmt.Errorf("udp: %s: %w", address, err)
	}
	return c, nil
}
