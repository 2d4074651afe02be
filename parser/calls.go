package parser

import "github.com/gradproxy/gradproxy/tensor"

// Calls tells which code of a process calls the collectives that one of its connections carries, as seen in the process
// itself. The process is the app at the connection's own end. Calls must be safe for concurrent use. Its methods may
// ask another process, and so wait for its turn on a busy machine; they must not wait for the job or for a peer.
type Calls interface {
	// Of appends to dst the calls that the process has given this tag, and returns the extended slice: one call for
	// each process group that the connection may belong to, and for each layout that the process's objects may have. A
	// call must be there before the process sends the first byte of its payload. Of returns dst as it is if nothing is
	// known: the process is not watched (yet), the call was made before it was. A tag that a group has given to a call
	// that was not noted, or has been forgotten, is a Call of Somebody without Elements. A layout in which a call makes
	// no sense, such as a sum of no elements, may be left out. If answered is false nobody knows whether the process
	// has called anything with this tag, for example while the process that probes is stopped: Of appends nothing, and
	// the calls of other tags stay valid.
	Of(dst []Call, tag uint32) (calls []Call, answered bool)
	// Proved says that the connection's messages have agreed with the calls, and that one of the calls proves a
	// gradient. A parser says so at the first such sum of a direction.
	Proved()
	// Contradicted says that the connection carries something else than the process has called; reason is one line. It
	// ends the proof for the process, for as long as that lives: from then on Of returns dst as it is, on each of the
	// process's connections. The first reason for a process must be logged and counted.
	Contradicted(reason string)
}

// A Call is one collective, as a process has called it.
type Call struct {
	Source   uint64       // identifies the process group and the layout: all calls of one group in one layout have the same
	Caller   Caller       // the code that calls
	Sum      bool         // the operator adds up, or averages
	Elements int          // of its one tensor; 0: not known, or there are several tensors, or it is no all-reduce
	DType    tensor.DType // of the elements; 0: not known
	Ranks    int          // of the group; 0: not known
	Buffer   uint64       // identifies the memory that is summed, for as long as the memory lives; 0: not known
	Bucket   uint64       // identifies the bucket whose memory this is, among the buckets of all processes and for all connections; 0: not known
	Member   Member       // the process's place in the group, as its memory shows it: the wire may contradict it
}

// A Member is a process's place in a process group. The zero Member: not known.
type Member struct{ Rank, Ranks int }

// A Caller is the code that calls a collective.
type Caller uint8

const (
	Somebody   Caller = iota // any code of the job
	DDPReducer               // DistributedDataParallel, for a bucket of gradients that lies in the bucket's own memory
)
