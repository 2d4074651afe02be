// Package prober keeps the rights that probes take away from the process that parses bytes.
//
// Probes load programs into the kernel and look into other processes. A process of its own does that, the prober: this
// program started once more, before it gives up its rights. The proxy asks it through two socket pairs, one for
// questions that must be answered at once and one for looks at /proc. Whoever has taken over the proxy can ask too, so
// the prober takes every request for hostile:
//
//   - a request has one length, and no path, no program, no address of memory and no number of a process of the asker's
//     choice in it;
//   - it names a process of a job by a TCP connection of the proxy's own, a descriptor that comes with it: the process
//     at the other end is meant, or one that sees the connection under another address, which the proxy names, since
//     rules may have rewritten it: a hostile proxy can so have any process looked at that has a TCP connection;
//   - an answer tells the collectives of a process that was found so, and no more;
//   - the memory of the prober is bounded, and a request that is out of form ends it.
//
// Most questions about calls are not asked: with the answer to its first request the proxy gets a descriptor of memory
// to which the programs write the newest calls, and which it maps for reading ([probe.Recent]). Nobody but the programs
// can write there. The memory has calls of processes that the proxy has had looked at, and of no others.
//
// A question without an answer in time fails alone, since a prober that is stopped, or has no turn on a busy machine,
// comes back. No other question is asked before its answer has come, which is dropped: so answers need no numbers, and
// none is taken for another question's. It ends no proof; meanwhile nothing is known.
//
// The prober ends with the proxy, whatever ends that: the socket pairs close. A new proxy that takes over from an old
// one has a prober of its own. If a prober ends first, nothing is proved any more: the proxy cannot start another,
// since it has given up the right to.
package prober

// Memory is the memory of a prober in bytes, to which its collector keeps as far as it can. The table of symbols of
// PyTorch's library takes most.
const Memory = 64 << 20
