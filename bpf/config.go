package bpf

import (
	"net/netip"
	"time"
)

// Config says which connections are redirected, and where to.
type Config struct {
	Cgroup string // folder of the cgroup whose processes' connections are redirected, cgroups below it included
	Proxy  string // folder of the cgroup that this process is in, or of one above it: there SO_ORIGINAL_DST is answered
	// Own is the folder of a cgroup that no process but the proxy is in: TCP sockets that it makes from then on have
	// Mark. "": it marks them itself, which takes a capability.
	Own string

	Networks    []netip.Prefix   // destinations
	Tunnels     []netip.AddrPort // the peers' tunnels, which are left alone
	First, Last uint16           // destination ports, both included
	Listen4     uint16           // port of the listener on 127.0.0.1; IPv4 networks need it
	Listen6     uint16           // port of the listener on ::1; IPv6 networks need it
	Mark        uint32           // SO_MARK of the proxy's own sockets; with Refuse also of the listeners

	Timeout time.Duration // since the last Refresh, after which the proxy counts as dead
	Refuse  bool          // connections are refused then; false: they go directly to their servers
	Hold    time.Duration // with Refuse: for this long after Timeout connections wait for the next proxy instead; 0: they do not
}

// A Flow is a connection that was redirected. Its counters are the kernel's for the client's socket: exact once it is
// closed, and before as of the last round trip that the client's sending took. Of bytes an end of stream counts as one.
type Flow struct {
	Client, Server   netip.AddrPort // as the client sees them; Client is zero until the handshake is done
	Open             bool
	Lasted           time.Duration // until now, if it is open
	Sent, Received   uint64        // bytes, by the client
	SegmentsSent     uint32        // of TCP, also segments without data
	SegmentsReceived uint32
}

// A Total is the sum over all flows, also the ones that Flows has forgotten.
type Total struct {
	Taken, Refused                 uint64 // connections
	Sent, Received                 uint64 // bytes, by the clients
	SegmentsSent, SegmentsReceived uint64
}
