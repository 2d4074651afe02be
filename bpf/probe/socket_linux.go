//go:build amd64 || arm64

package probe

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// socketInode returns the inode of the established TCP socket with this address of its own and one of remotes, in the thread's
// network namespace or else in another one.
func socketInode(own netip.AddrPort, remotes []netip.AddrPort) (uint32, error) {
	for _, remote := range remotes {
		s, err := netlink.SocketGet(net.TCPAddrFromAddrPort(unmap(own)), net.TCPAddrFromAddrPort(unmap(remote)))
		if err != nil || s.State == unix.BPF_TCP_LISTEN {
			continue
		}
		if s.INode == 0 {
			return 0, ErrNotAccepted
		}
		return s.INode, nil
	}
	return socketElsewhere(own, remotes)
}
