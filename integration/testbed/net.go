//go:build linux

package testbed

import (
	"context"
	"net"
)

// Dial connects from inside the site. The address must be numeric.
func (s *Site) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = s.Do(func() error {
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
