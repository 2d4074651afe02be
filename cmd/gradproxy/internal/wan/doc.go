// Package wan lays emulated wide-area networks out on one machine: sites, which are network namespaces, and links
// between them with a rate, a delay, jitter, loss, a queue and a price, as one topology file says.
//
//	Topology        the content of a file: sites, links, shared bottlenecks, traces; pure data
//	Plan            the things made of it: names, addresses, devices, routes, and the back end that plays the links; pure data
//	Network         a plan that is up
//	Check           measures its links against their settings
//
// A back end plays the links: "user" (package wansim: TUN devices and this process between them), "kernel" (package tc:
// tbf and netem on veth devices) or "ebpf" (package tc: programs at clsact).
package wan
