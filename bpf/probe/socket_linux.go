//go:build amd64 || arm64

package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
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
		state, inode, e := socketOf(unmap(own), unmap(remote))
		switch {
		case errors.Is(e, syscall.ENOENT):
		case e != nil:
			err = e
		case state == unix.BPF_TCP_LISTEN:
		case inode == 0:
			return 0, true, ErrNotAccepted
		default:
			return inode, true, nil
		}
	}
	return 0, false, err
}

// socketOf asks the kernel for the TCP socket with these two addresses, or else for one that listens at own, by struct inet_diag_req_v2 of Linux's inet_diag.h. It asks for the
// one socket. A dump of all with these ports has others too: from Linux 6.8 on any that was bound and not connected, and may have it first.
func socketOf(own, remote netip.AddrPort) (state uint8, inode uint32, err error) {
	family := byte(unix.AF_INET6)
	if own.Addr().Is4() {
		family = unix.AF_INET
	}
	question := []byte{family, unix.IPPROTO_TCP, 0, 0, 0xff, 0xff, 0xff, 0xff} // of any state
	question = binary.BigEndian.AppendUint16(question, own.Port())
	question = binary.BigEndian.AppendUint16(question, remote.Port())
	for _, a := range []netip.Addr{own.Addr(), remote.Addr()} {
		var room [16]byte
		copy(room[:], a.AsSlice())
		question = append(question, room[:]...)
	}
	question = append(question, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // on any interface, with any cookie
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	request.AddRawData(question)
	answers, err := request.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	if err != nil {
		return 0, 0, err
	}
	const stateAt, inodeAt = 1, 68 // in struct inet_diag_msg
	if len(answers) != 1 || len(answers[0]) < inodeAt+4 {
		return 0, 0, errors.New("probe: the kernel's answer about a socket is not understood")
	}
	return answers[0][stateAt], binary.NativeEndian.Uint32(answers[0][inodeAt:]), nil
}
