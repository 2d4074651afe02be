package tensorflow

// A collective is a call of a collective operation by all workers, as the workers tell their leader of it
// (CompleteInstance).
type collective struct {
	name    string // of node and operation
	typ     uint64 // typeReduce...
	number  uint64 // of the data type
	shape   shape
	unclear bool // workers disagree
}

// Types of collectives (CollectiveType in tensorflow/core/framework/collective.h).
const (
	typeReduce    = 0
	typeBroadcast = 1
	typeGather    = 2
)

// An instanceID names one call of a collective.
type instanceID struct {
	scope           scope
	group, instance uint64
}

// A collectiveID names a collective whose calls follow each other, one at each step.
type collectiveID struct {
	scope  scope
	group  uint64
	name   string
	number uint64
	shape  uint64
}

// maxName bounds the texts that facts hold, in bytes.
const maxName = 1 << 10
