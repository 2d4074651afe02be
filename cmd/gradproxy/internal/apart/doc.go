// Package apart runs a part of this program as a process of its own, so that rights which that part takes are not the
// ones of the process that parses bytes.
//
// The process is this program started once more, before the parser's process gives its rights up, with a name by which
// it knows its part. The two speak through socket pairs, each of whose datagrams is one request or one answer. The
// process takes every request for hostile, since whoever has taken over the parser's process can send some too: one
// that is out of form ends it.
//
// It ends with the process that has started it, whatever ends that: the socket pairs close, and the kernel kills it.
package apart
