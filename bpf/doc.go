// Package bpf redirects the TCP connections of a cgroup to a proxy by programs in the kernel (eBPF), so that nothing
// else on the host is touched: other processes, the rules of nf_tables and the routes stay as they are.
//
// The programs, in the order in which a connection meets them:
//
//	connect4, connect6          job's connect(2): a destination in one of the networks becomes the proxy's listener on loopback
//	sockops                     handshake done: notes the destination that the client with this address and port dialled; later counts bytes
//	egress                      job's first packet: while the proxy is dead and others wait for the next one (Hold), it is dropped, and repeated by the kernel
//	getsockopt                  proxy's SO_ORIGINAL_DST on the accepted socket: answers with that destination
//	sock                        proxy's socket(2): gives a socket of TCP the proxy's mark, which is never redirected
//	getpeername4, getpeername6  job's getpeername(2): the server that it dialled, and never the proxy
//
// IPv4, IPv6, and the IPv4 of IPv6 sockets (::ffff:a.b.c.d) are redirected alike. The client's own address is that
// which it would have had without a proxy: a socket that is not bound gets the source address of the route to the
// server's network.
//
// Never redirected are: protocols other than TCP; ports outside the range, and port 22; destinations in no network;
// addresses of this host, so that a job's connections to itself stay as they are; the peers' tunnels; sockets with the
// proxy's mark; sockets that are bound to a device; and sockets of another network namespace than the proxy's, whose
// loopback is not the proxy's. A connection that is not redirected costs a look-up at its connect and, with Hold, a
// look at its socket's state for each packet. A client of Multipath TCP is redirected like one of TCP, which it then
// is: the listener speaks no other.
//
// Whether anything is redirected depends on a beat, a time that the proxy renews: with the last one older than a few
// seconds new connections go directly to their servers, or are refused, as the configuration says; with Hold they wait
// at the dead proxy's port, where the next one listens, with the flows of the dead one. Programs that let connections
// pass are held by links, which end with the process. Programs that refuse or hold are attached to the cgroup itself,
// and end with the cgroup or with the next [Attach] to it: a proxy that is killed goes on refusing. Where the next
// proxy cannot go on with the dead one's flows, since their form differs or it has no Hold, the dead one's egress
// program stays until [Hooks.Close]: connections that wait are refused, and no other program's listener gets them.
//
// Attach needs Linux 5.14 (SO_NETNS_COOKIE), CAP_BPF, CAP_NET_ADMIN, none of which is needed afterwards (before Linux
// 5.19 use of maps may take CAP_BPF), and a hierarchy of cgroups of version 2; see package cgroup.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 bpf redirect.c -- -O2 -g -Wall -Wextra -Werror
