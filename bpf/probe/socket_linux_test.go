//go:build amd64 || arm64

package probe

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The socket of a connection is found as soon as its other end is connected, accepted or not.
func TestNewSocketsAreFound(t *testing.T) {
	t.Parallel()
	require.Root(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	for i := range 3000 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = socketInode(address(c.RemoteAddr()), []netip.AddrPort{address(c.LocalAddr())})
		if err != nil && !errors.Is(err, ErrNotAccepted) {
			t.Errorf("connection %d: %v", i, err)
		}
		c.Close()
	}
}
