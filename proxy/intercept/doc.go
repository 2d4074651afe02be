// Package intercept takes over TCP connections of jobs before they reach the WAN and says where each was going.
//
// There are four ways. [Forward] listens on an address that the job is told, and has one target. [Redirect] (Linux)
// lets the job connect to the peers' real addresses: rules of nf_tables redirect the connections to a local listener,
// which reads the original destination with SO_ORIGINAL_DST. A transparent Redirect, on a gateway, is given the packets
// of other hosts as they are (TPROXY), so that its sockets have the servers' addresses; with [TransparentControl] the
// connections that it makes can have the clients'. [Hooked] leaves the redirection to others, such as programs on a
// cgroup.
//
// The rules are data, a [Plan], which can be printed before anything is touched. They are made so that a host is not
// harmed by them:
//
//   - only the first packet of a connection (SYN alone) is ever matched, so connections that were open before the rules
//     came stay as they are, even where conntrack picks them up in the middle;
//   - they match only while the set "alive" holds its one element, which times out 5 s after the proxy last refreshed
//     it: a dead or stuck proxy redirects no new connections. Connections redirected before then keep their mapping,
//     which conntrack holds, for as long as their proxy lives;
//   - port 22, local addresses, the peers' tunnel addresses and whatever carries the proxy's own mark are never
//     matched.
//
// The fate of new connections once the proxy is dead is the user's choice: they go directly to the peer, in the
// clear and unchanged, or they are refused with a TCP reset.
package intercept

import (
	"net"
	"net/netip"
)

// A Handler is given each intercepted connection and the address that its client meant to reach. It owns c and must
// close it, and then call ended. It is called on a goroutine of its own and may return before.
type Handler func(c *net.TCPConn, server netip.AddrPort, ended func())
