package tunnel

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Settings of a carrier's TCP connection.
const (
	notSentLowat = 128 << 10        // bytes that may wait in the socket: what is behind them waits here, where small messages overtake
	userTimeout  = 15 * time.Second // without acknowledgement, after which the kernel gives up
)

// Listen listens for carriers on a TCP address. Unlike net.Listen's, its sockets never speak MPTCP, which no
// socket filter sees.
func Listen(address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(context.Background(), "tcp", address)
}

// dialTCP is the default of Config.Dial.
func dialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	return d.DialContext(ctx, network, address)
}

// loopback reports whether a never leaves the host.
func loopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		ip, ok := netip.AddrFromSlice(a.IP)
		return ok && ip.Unmap().IsLoopback()
	}
	return false
}
