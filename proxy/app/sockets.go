package app

import "net/netip"

// A HostSocket is a TCP socket of this network namespace.
type HostSocket struct {
	Local, Remote netip.AddrPort
	Listens       bool
}
