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

// socketInode returns the inode of the established TCP socket with this address of its own and one of remotes, in the
// thread's network namespace or else in another one.
func socketInode(own netip.AddrPort, remotes []netip.AddrPort) (inode uint32, err error) {
	if inode, known, err := socketHere(own, remotes); known {
		return inode, err
	}
	if inode, err = socketElsewhere(own, remotes); err == nil || errors.Is(err, ErrNotAccepted) {
		return inode, err
	}
	// Now and then a look misses a socket that is there (Linux 6.18: 3 of some hundred connections of two real jobs).
	// On a busy machine the next look may miss it as well.
	for _, pause := range [...]time.Duration{1, 4, 16} {
		time.Sleep(pause * time.Millisecond)
		if inode, known, again := socketHere(own, remotes); known {
			return inode, again
		} else if again != nil {
			err = fmt.Errorf("%w (%w)", err, again)
		}
	}
	return 0, err
}

// socketHere looks in the thread's network namespace. known: there is such a socket, and err is nil or says that nobody
// has accepted it.
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

// socketOf returns the state and the inode of the TCP socket with these two addresses, or of one that listens at own.
// ENOENT: there is none.
func socketOf(own, remote netip.AddrPort) (state uint8, inode uint32, err error) {
	answers, err := ask(own, remote, 0)
	if err == nil && answers[0].state != unix.BPF_TCP_LISTEN || err != nil && !errors.Is(err, syscall.ENOENT) {
		return answers[0].state, answers[0].inode, err
	}
	// The kernel finds a socket that is bound to an interface by its number alone, which a dump does not need.
	if answers, err = ask(own, remote, unix.NLM_F_DUMP); err != nil {
		return 0, 0, err
	}
	for _, a := range answers {
		if a.own == own && a.remote == remote && a.state != unix.BPF_TCP_LISTEN {
			return a.state, a.inode, nil
		}
	}
	return 0, 0, syscall.ENOENT
}

// An answer is the part of a struct inet_diag_msg of Linux's inet_diag.h that is needed.
type answer struct {
	state       uint8
	inode       uint32
	own, remote netip.AddrPort
}

// ask asks the kernel for the TCP socket with these two addresses, or else for one that listens at own, by struct
// inet_diag_req_v2 of Linux's inet_diag.h, and has an answer at least unless there is an error. With NLM_F_DUMP it has
// all sockets with these ports: from Linux 6.8 on also any that was bound and not connected.
func ask(own, remote netip.AddrPort, flags int) ([]answer, error) {
	none := []answer{{}}
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
	question = append(question, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // bound to no interface, with any cookie
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, flags)
	request.AddRawData(question)
	texts, err := request.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	if err != nil {
		return none, err
	}
	var answers []answer
	for _, b := range texts {
		const stateAt, portsAt, ownAt, remoteAt, inodeAt = 1, 4, 8, 24, 68
		if len(b) < inodeAt+4 {
			return none, errors.New("probe: the kernel's answer about a socket is not understood")
		}
		address := func(at, port int) netip.AddrPort {
			a := netip.AddrFrom16([16]byte(b[at : at+16]))
			if b[0] == unix.AF_INET {
				a = netip.AddrFrom4([4]byte(b[at : at+4]))
			}
			return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b[port:]))
		}
		answers = append(answers, answer{b[stateAt], binary.NativeEndian.Uint32(b[inodeAt:]), address(ownAt, portsAt), address(remoteAt, portsAt+2)})
	}
	if len(answers) == 0 {
		return none, syscall.ENOENT
	}
	return answers, nil
}
