// Package warden keeps the rights that interception takes away from the process that parses bytes.
//
// Rules of nf_tables lose their force unless they are refreshed, the sockets that dial carry a mark by which the rules
// spare them, and a kernel may let only few choose a congestion control. All that takes CAP_NET_ADMIN. A process of its
// own has it, the warden: this program started once more (package apart). The proxy asks it through two socket pairs,
// one for sockets, since dials wait for the answers, and one for rules. Whoever has taken over the proxy can ask too,
// so
//
//   - the first request, which is sent before the first byte is parsed, fixes the table, its ports, its mark, its kind
//     and the congestion control;
//   - later ones refresh, end or remove these rules, or give them other networks and tunnels, of families that they
//     have;
//   - a socket comes as a descriptor, and gets that mark, the right to a client's address if the rules are of tproxy,
//     that congestion control, or larger buffers, and nothing else: marks are for TCP sockets that are not connected;
//   - a request that is out of form ends the warden.
//
// The warden holds no listener, no connection and no claim. If the proxy is killed the kernel kills the warden too, and
// the rules stay as they are: they lose their force by themselves, and refuse or hold connections if they do. So it is
// with a warden that has ended, or is stopped: open connections go on, and new ones fare as they do without a proxy.
// The proxy cannot start another warden, since it has given up the right to. It dials without marks once a warden that
// has ended cannot have renewed the rules any more. While the warden is stopped it dials nothing: the warden may go on,
// and renew them, at any moment.
package warden

// Memory is the memory of a warden in bytes, to which its collector keeps as far as it can.
const Memory = 32 << 20
