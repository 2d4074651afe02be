// Package ddp makes a training job data-parallel as torch.nn.parallel.DistributedDataParallel does, with the same
// collectives in the same order, so that a reader of the connections sees a PyTorch job. Names in comments are of
// PyTorch's torch/csrc/distributed/c10d and torch/nn/parallel/distributed.py.
//
//	New         all-gather of the number of parameters, broadcast of their shapes and strides, broadcast of their values
//	Forward     between the first step and the second, two broadcasts of the new order of the buckets
//	Ready       all-reduce of a bucket of gradients as soon as all of them are ready, while others are being computed
//	Finish      waits for all buckets and hands back the average
//
// The first step reduces all gradients in one bucket. From the second on they are cut in the order in which they were
// ready, the first bucket at 1 MiB and the others at 25 MiB.
package ddp

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
)

const (
	firstBucket    = 1 << 20   // reducer.hpp, kDefaultFirstBucketBytes
	bucketLimit    = 25 << 20  // reducer.hpp, kDefaultBucketBytesCap
	broadcastLimit = 250 << 20 // distributed.py, broadcast_bucket_size

	float32Len = 4 // bytes
)

// A Replica is one rank's copy of a model, whose gradients are averaged over all ranks. It is not safe for concurrent
// use.
type Replica struct {
	group  *gloosim.Group
	params []train.Param
	calls  *Calls // nil: nobody sees them

	buckets []*bucket
	where   []place // of each parameter's gradient
	next    int     // bucket to be reduced next: they are in order
	order   []int   // of the parameters, as they were ready in the first step
	steps   int     // that have begun
	ids     uint64  // of buckets, given so far
}

// A bucket is gradients that travel as one tensor.
type bucket struct {
	id     uint64 // identifies its memory
	params []int
	b      []byte        // little-endian float32s; the group's while work runs
	left   int           // parameters that are not ready yet
	work   *gloosim.Work // nil until all are
}

// A place is where in which bucket a gradient is.
type place struct{ bucket, off int }

// New makes a replica of the model with these parameters, and sets their values to rank 0's. Its all-reduces are noted
// in calls, which may be nil.
func New(g *gloosim.Group, params []train.Param, calls *Calls) (*Replica, error) {
	r := &Replica{group: g, params: params, calls: calls}
	if err := r.verifyShapes(); err != nil {
		return nil, fmt.Errorf("ddp: %w", err)
	}
	if err := r.broadcastValues(); err != nil {
		return nil, fmt.Errorf("ddp: broadcast of the parameters: %w", err)
	}
	r.setBuckets(cut(r.sizes(inOrder(len(params))), math.MaxInt))
	return r, nil
}

// Forward begins a step. Each rank calls it before it computes the gradients of one batch.
func (r *Replica) Forward() error {
	if r.steps++; r.steps == 2 {
		if err := r.rebuild(); err != nil {
			return fmt.Errorf("ddp: rebuild of the buckets: %w", err)
		}
	}
	for _, b := range r.buckets {
		b.left, b.work = len(b.params), nil
	}
	r.next = 0
	return nil
}

// Ready says that a parameter's gradient is complete for this step. Gradients become ready in the same order on all
// ranks.
func (r *Replica) Ready(param int) {
	if r.steps == 1 {
		r.order = append(r.order, param)
	}
	at := r.where[param]
	b := r.buckets[at.bucket]
	average := 1 / float32(r.group.Size()) // reducer.cpp divides before the all-reduce
	dst := b.b[at.off:]
	for i, g := range r.params[param].Grad {
		binary.LittleEndian.PutUint32(dst[i*float32Len:], math.Float32bits(g*average))
	}
	b.left--
	for r.next < len(r.buckets) && r.buckets[r.next].left == 0 {
		next := r.buckets[r.next]
		r.calls.note(r.group, next)
		next.work = r.group.AllReduce(next.b)
		r.next++
	}
}

// Finish waits until all gradients are averaged, and writes them to the parameters.
func (r *Replica) Finish() error {
	if r.next < len(r.buckets) {
		panic(fmt.Sprintf("ddp: Finish in step %d before all gradients were ready", r.steps-1))
	}
	for _, b := range r.buckets {
		if err := b.work.Wait(); err != nil {
			return fmt.Errorf("ddp: step %d: %w", r.steps-1, err)
		}
	}
	for i, p := range r.params {
		at := r.where[i]
		decode(p.Grad, r.buckets[at.bucket].b[at.off:])
	}
	return nil
}

// setBuckets makes room for gradients in these buckets.
func (r *Replica) setBuckets(of [][]int) {
	r.buckets, r.where = nil, make([]place, len(r.params))
	for i, params := range of {
		size := 0
		for _, p := range params {
			r.where[p] = place{i, size}
			size += float32Len * len(r.params[p].Grad)
		}
		r.ids++
		r.buckets = append(r.buckets, &bucket{id: r.ids, params: params, b: make([]byte, size), left: len(params)})
	}
}

// sizes returns parameters and their sizes in bytes.
func (r *Replica) sizes(params []int) []sized {
	s := make([]sized, len(params))
	for i, p := range params {
		s[i] = sized{p, float32Len * len(r.params[p].Value)}
	}
	return s
}

func inOrder(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// A sized parameter is an index and its bytes.
type sized struct{ param, bytes int }

// cut groups parameters, in their order: a group is full when it reaches its limit. The last limit holds for all
// further groups (reducer.cpp, compute_bucket_assignment_by_size).
func cut(params []sized, limits ...int) (groups [][]int) {
	var group []int
	size := 0
	for _, p := range params {
		group = append(group, p.param)
		size += p.bytes
		if limit := limits[min(len(groups), len(limits)-1)]; size >= limit {
			groups = append(groups, group)
			group, size = nil, 0
		}
	}
	if len(group) > 0 {
		groups = append(groups, group)
	}
	return groups
}

func decode(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[i*float32Len:]))
	}
}

func encode(dst []byte, src []float32) []byte {
	dst = slices.Grow(dst, float32Len*len(src))
	for _, v := range src {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}
