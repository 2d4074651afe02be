package probe

import "errors"

// ErrNotAccepted says that no process has accepted a connection yet.
var ErrNotAccepted = errors.New("probe: no process has accepted the connection yet")

// A Call is one collective as a process has called it, read in one of the layouts that the process's objects may have.
type Call struct {
	Source   uint64 // identifies the process group and the layout: the same for all calls of one group
	Bucket   bool   // an all-reduce of a bucket of gradients, by DistributedDataParallel
	Elements uint64 // of an all-reduce's one tensor, NoElements where none has so many; 0: not known
	Type     uint8  // c10::ScalarType of the elements
	Op       uint8  // c10d::ReduceOp::RedOpType
	Ranks    int    // of the group; 0: not known, since its construction was not seen
	Storage  uint64 // address of the object that owns the memory that is summed

	// Freed counts the times before the call at which buckets of the process were freed, or were about to be. As long
	// as it stays the same, all buckets live.
	Freed uint32

	Member Member // the process's rank in the group, as the group's object shows it in the layout
}

// A Member is a process's rank in a group, and the number of its ranks. The zero Member: not known.
type Member struct{ Rank, Ranks int }

// NoElements is the number of elements that a wrong layout shows.
const NoElements = 1 << 60

// Numbers of c10d::ReduceOp::RedOpType.
const (
	OpSum     = 0
	OpAverage = 1
)

// Counts count a process's calls since it was found.
type Counts struct {
	Reduces        uint32 // all-reduces
	Buckets        uint32 // all-reduces of a bucket's own tensor, by DistributedDataParallel
	ReducerBuckets uint32 // buckets that DistributedDataParallel was about to sum, in whatever way
	Others         uint32 // other collectives that look like all-reduces on the wire: reduce-scatters, all-reduces of several tensors
}
