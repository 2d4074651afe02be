// Package warden keeps the rights that interception takes away from the process that parses bytes.
//
// The rules of nf_tables lose their force unless they are refreshed. The sockets that dial carry a mark by which the
// rules spare them. A kernel may let only privileged processes choose a congestion control. All of this takes
// CAP_NET_ADMIN, which only the warden keeps: a process of its own, this program started once more (package apart). The
// proxy asks the warden through two socket pairs, one for sockets, since dials wait for the answers, and one for rules.
// An attacker who has taken over the proxy can ask too, so the warden's power is small:
//
//   - the first request, which is sent before the first byte is parsed, fixes the table, its ports, its mark, its kind
//     and the congestion control;
//   - later requests can only refresh, end or remove these rules, or give them other networks and tunnels, of the
//     address families that they have;
//   - a socket comes as a descriptor. It can get only that mark, the right to a client's address if the rules are of
//     tproxy, that congestion control, or larger buffers. Marks are for TCP sockets that are not connected;
//   - a request that is out of form ends the warden.
//
// The warden holds no listener, no connection and no claim. If the proxy is killed, the kernel kills the warden too.
// The rules then stay as they are: they lose their force by themselves, or go on to refuse or hold connections if that
// is their kind. The same happens if the warden ends or is stopped: open connections go on, and new connections are
// treated as they are without a proxy. The proxy cannot start another warden, since it has given up the right to. After
// the end of the warden the proxy dials without marks as soon as the rules have surely lost their force. While the
// warden is stopped the proxy dials nothing, since the warden may go on and renew the rules at any moment.
package warden

// Memory is the memory limit of a warden, in bytes. Go's garbage collector keeps to it as far as it can.
const Memory = 32 << 20
