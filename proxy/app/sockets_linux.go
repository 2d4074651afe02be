package app

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Fields of struct inet_diag_msg of linux/inet_diag.h, and of the program by which a dump leaves out sockets.
const (
	diagPorts  = 4
	diagSource = 8
	diagTarget = 24

	diagBytecode = 1 // INET_DIAG_REQ_BYTECODE
	diagToHost   = 8 // INET_DIAG_BC_D_COND
)

// HostSockets returns the TCP sockets of this network namespace that listen, and the ones that are connected to one of
// the hosts. The kernel leaves out the others, which may be very many.
func HostSockets(hosts []netip.Addr) ([]HostSocket, error) {
	var all []HostSocket
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		listening, err := dump(diagRequest(family, 1<<tcpListen, netip.AddrPort{}, netip.AddrPort{}))
		if err != nil {
			return nil, err
		}
		all = append(all, listening...)
		for _, host := range hosts {
			if family == unix.AF_INET && !host.Is4() {
				continue
			}
			to, err := dump(diagRequest(family, anyState&^(1<<tcpListen), netip.AddrPort{}, netip.AddrPort{}), toHost(host))
			if err != nil {
				return nil, err
			}
			all = append(all, to...)
		}
	}
	return all, nil
}

// dump returns the sockets that a request asks for.
func dump(parts ...[]byte) (all []HostSocket, err error) {
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	for _, p := range parts {
		req.AddRawData(p)
	}
	err = req.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(b []byte) bool {
		if len(b) < diagInode+4 {
			return true
		}
		at := func(address, port int) netip.AddrPort {
			a := netip.AddrFrom16([16]byte(b[address:]))
			if b[0] == unix.AF_INET {
				a = netip.AddrFrom4([4]byte(b[address:]))
			}
			return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b[port:]))
		}
		all = append(all, HostSocket{at(diagSource, diagPorts), at(diagTarget, diagPorts+2), b[diagState] == tcpListen})
		return true
	})
	return all, err
}

// toHost returns the attribute that leaves out the sockets that are not connected to a host: one struct
// inet_diag_bc_op, which accepts a socket by ending the program, and else jumps behind its end. The kernel compares an
// address of IPv4 with mapped ones as well.
func toHost(host netip.Addr) []byte {
	const op, attribute = 4, 4
	address := host.AsSlice()
	family := byte(unix.AF_INET6)
	if host.Is4() {
		family = unix.AF_INET
	}
	program := []byte{diagToHost, 0, 0, 0}
	program = append(program, family, byte(host.BitLen()), 0, 0) // struct inet_diag_hostcond
	program = binary.NativeEndian.AppendUint32(program, 1<<32-1) // of any port
	program = append(program, address...)
	program[1] = byte(len(program))
	binary.NativeEndian.PutUint16(program[2:], uint16(len(program)+op))
	b := binary.NativeEndian.AppendUint16(nil, uint16(attribute+len(program)))
	return append(binary.NativeEndian.AppendUint16(b, diagBytecode), program...)
}
