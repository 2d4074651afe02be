// Package prober keeps the rights that probes take away from the process that parses bytes.
//
// To probe, a process must load programs into the kernel and look into other processes. The prober does that, a process
// of its own: this program started once more, before it gives up its rights. The proxy asks the prober through two
// socket pairs, one for questions that must be answered at once and one for looks at /proc. An attacker who has taken
// over the proxy can ask too, so the prober treats every request as hostile:
//
//   - every request has the same length, and holds no path, no program, no memory address and no process number;
//   - a request names a process by a TCP connection of the proxy, whose descriptor comes with the request. It means the
//     process at the other end. Since rules may have rewritten the connection's address, the proxy may name the address
//     under which the process sees the connection. So a hostile proxy can have any process examined that has a TCP
//     connection;
//   - an answer tells the collectives of a process that was found in this way, and nothing else;
//   - the memory of the prober is bounded, and a request that is out of form ends the prober.
//
// Most calls are known without a question. With the answer to its first request the proxy gets a descriptor of memory
// to which the programs write the newest calls, and maps it for reading ([probe.Recent]). Only the programs can write
// there. The memory has the calls of processes that the proxy has asked to examine, and of no others.
//
// A question that is not answered in time fails, but the prober stays in use: it may have been stopped, or have had no
// turn on a busy machine. The proxy asks no other question until the late answer has come, and drops that answer. So
// answers need no numbers, and none is taken for the answer to another question. A late answer ends no proof; until it
// comes nothing is known.
//
// The prober ends when the proxy does, for whatever reason, since the socket pairs close. A new proxy that takes over
// from an old one has a prober of its own. If a prober ends before its proxy, nothing is proved any more: the proxy
// cannot start another prober, since it has given up the right to.
package prober

// Memory is the memory limit of a prober, in bytes. Go's garbage collector keeps to it as far as it can. The symbol
// table of PyTorch's library takes most of it.
const Memory = 64 << 20
