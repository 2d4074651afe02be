//go:build linux

package testbed

import (
	"context"
	"net"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// Dial connects from inside the site. The address must be numeric.
func (s *Site) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialIn(ctx, s.Namespace, network, address)
}

// dialEdge connects from where the site's proxy runs.
func (s *Site) dialEdge(ctx context.Context, network, address string) (net.Conn, error) {
	ns, _, _ := s.edge()
	return dialIn(ctx, ns, network, address)
}

func dialIn(ctx context.Context, ns *wansim.Namespace, network, address string) (c net.Conn, err error) {
	err = ns.Do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Listen listens inside the site. The address must be numeric.
func (s *Site) Listen(address string) (l net.Listener, err error) {
	err = s.Do(func() error {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}
