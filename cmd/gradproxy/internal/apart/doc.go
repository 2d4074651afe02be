// Package apart runs a part of this program as a process of its own, so that the process that parses bytes need not
// keep the rights that the part takes.
//
// The part is this program started once more, before the parsing process gives its rights up. It knows by its name
// which part it is. The two processes speak through socket pairs, each of whose datagrams is one request or one answer.
// The part treats every request as hostile, since an attacker who has taken over the parsing process can send requests
// too. A request that is out of form ends the part.
//
// The part ends when the process that has started it does, for whatever reason: the socket pairs close, and the kernel
// kills the part.
package apart
