package tensorflow

import "github.com/gradproxy/gradproxy/parser/internal/protoscan"

// A collective is a call of a collective operation by all workers, as the workers tell their leader of it (CompleteInstance).
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

// instance notes a call of a collective.
func (f *facts) instance(id instanceID, c collective) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, ok := f.instances.Use(id); ok {
		if last.typ != c.typ || last.number != c.number || last.name != c.name {
			last.unclear = true
			f.instances.Put(id, last)
		}
		return
	}
	f.instances.Keep(id, c, maxInstances)
	k := collectiveID{id.scope, id.group, c.name, c.number, c.shape.hash}
	n, _ := f.collectives.Use(k)
	f.collectives.Keep(k, n+1, maxCollectives)
}

// collective returns a call of a collective, and how many such calls there were.
func (f *facts) collective(id instanceID) (c collective, calls int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok = f.instances.Use(id)
	if !ok || c.unclear {
		return collective{}, 0, false
	}
	calls, _ = f.collectives.Use(collectiveID{id.scope, id.group, c.name, c.number, c.shape.hash})
	return c, calls, true
}

// An instanceReader reads CompleteInstanceRequest.
type instanceReader struct {
	message         *message
	of              collective
	group, instance uint64
}

// Fields of CompleteInstanceRequest (tensorflow/core/protobuf/worker.proto).
var (
	pathInstanceName  = protoscan.Of(1)
	pathInstanceType  = protoscan.Of(2)
	pathInstanceDType = protoscan.Of(3)
	pathInstanceShape = protoscan.Of(4)
	pathInstanceDim   = protoscan.Of(4, fieldDim)
	pathInstanceSize  = protoscan.Of(4, fieldDim, fieldDimSize)
	pathGroup         = protoscan.Of(5)
	pathInstance      = protoscan.Of(7)
)

func (r *instanceReader) Field(p protoscan.Path, n int) protoscan.Action {
	switch p {
	case pathInstanceName:
		return protoscan.Keep
	case pathInstanceShape, pathInstanceDim:
		return protoscan.Descend
	}
	return protoscan.Skip
}

func (r *instanceReader) Kept(_ protoscan.Path, b []byte) {
	r.of.name = string(b[:min(len(b), maxName)])
}

// maxName bounds the texts that facts hold, in bytes.
const maxName = 1 << 10

func (r *instanceReader) Number(p protoscan.Path, v uint64) {
	switch p {
	case pathInstanceType:
		r.of.typ = v
	case pathInstanceDType:
		r.of.number = v
	case pathInstanceSize:
		r.of.shape.add(v)
	case pathGroup:
		r.group = v
	case pathInstance:
		r.instance = v
	}
}

func (r *instanceReader) Leave(protoscan.Path) {}

func (r *instanceReader) end(whole bool) bool {
	if whole {
		x := r.message.call.conn
		x.facts.instance(instanceID{x.scope, r.group, r.instance}, r.of)
	}
	return false
}
