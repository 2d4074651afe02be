//go:build amd64 || arm64

package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// socketInode returns the inode of the established TCP socket with this address of its own and one of remotes, in the thread's
// network namespace or else in another one.
func socketInode(own netip.AddrPort, remotes []netip.AddrPort) (inode uint32, err error) {
	if inode, known, err := socketHere(own, remotes); known {
		return inode, err
	}
	if inode, err = socketElsewhere(own, remotes); err == nil || errors.Is(err, ErrNotAccepted) {
		return inode, err
	}
	// A look now and then misses a socket that is there (Linux 6.18: 3 of some hundred connections of two real jobs).
	time.Sleep(time.Millisecond)
	if inode, known, again := socketHere(own, remotes); known {
		return inode, again
	} else if again != nil {
		err = fmt.Errorf("%w (%w)", err, again)
	}
	return 0, err
}

// socketHere looks in the thread's network namespace. known: there is such a socket, and err is nil or says that nobody has accepted it.
func socketHere(own netip.AddrPort, remotes []netip.AddrPort) (inode uint32, known bool, err error) {
	for _, remote := range remotes {
		s, e := netlink.SocketGet(net.TCPAddrFromAddrPort(unmap(own)), net.TCPAddrFromAddrPort(unmap(remote)))
		switch {
		case errors.Is(e, syscall.ENOENT):
		case e != nil:
			err = e
		case s.State == unix.BPF_TCP_LISTEN:
		case s.INode == 0:
			return 0, true, ErrNotAccepted
		default:
			return s.INode, true, nil
		}
	}
	return 0, false, err
}
