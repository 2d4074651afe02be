package gloo

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/gradproxy/gradproxy/tensor"
)

// DistributedDataParallel tells its bucket layout itself (torch/csrc/distributed/c10d/reducer.cpp). Before any
// gradient, with consecutive tags:
//
//	all-gather of int64: P, the number of parameters
//	broadcast of int64: their shapes
//	broadcasts of the parameters and buffers, in their order
//
// and between the first and the second step, unless it looks for unused parameters:
//
//	broadcast of int32: P parameter indices, bucket after bucket, then the number of buckets B
//	broadcast of int32: B counts of parameters per bucket
//
// So the number of elements of each later all-reduce of gradients is known, and an all-reduce of another size is not a
// gradient.

const (
	maxModels   = 16      // of a job, for each sayer
	maxBuckets  = 1 << 10 // of a model: one with more counts as not announced
	maxMetadata = 1 << 20 // bytes of a broadcast that is read
)

// A job holds the facts about a job by their sayer. The zero job has none.
type job struct {
	mu   sync.Mutex
	said map[sayer]*facts
	all  []*facts // the same, in the order in which they were made; it is replaced, never changed
}

// A sayer is a site whose ranks tell facts about a job: a peer, or this site.
type sayer struct {
	peer string
	own  bool
}

// by returns the facts that a sayer has told.
func (j *job) by(s sayer) *facts {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.said[s]
	if f == nil {
		if j.said == nil {
			j.said = map[sayer]*facts{}
		}
		f = new(facts)
		j.said[s], j.all = f, append(slices.Clip(j.all), f)
	}
	return f
}

// everyone returns the facts of all sayers.
func (j *job) everyone() []*facts {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all
}

// facts holds the models that one sayer has told of.
type facts struct {
	mu      sync.Mutex
	gathers []countGather
	models  []*model // the newest last
}

// A countGather is an all-gather of one int64.
type countGather struct {
	tag    uint32
	params int
}

// A model is one DistributedDataParallel module. Its buckets may come while it is in use; the rest does not change.
type model struct {
	countGather
	counts []uint64 // elements of each parameter
	hash   uint64   // of the counts, which no sender can choose
	total  uint64

	mu      sync.Mutex
	buckets []uint64        // elements of each bucket once they are announced
	weights *tensor.Weights // the parameters as they were broadcast at last; nil: they have not passed
}

// same reports whether m and o, which two sayers have told of, are the same model.
func (m *model) same(o *model) bool {
	return m.countGather == o.countGather && m.hash == o.hash
}

// weigh notes the parameters' values.
func (m *model) weigh(w *tensor.Weights) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.weights = w
}

// weighed returns the parameters' values, or nil if they have not passed.
func (m *model) weighed() *tensor.Weights {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.weights
}

// announced returns the number of elements of each bucket, or nil before the announcement.
func (m *model) announced() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.buckets
}

// addGather notes an all-gather.
func (f *facts) addGather(g countGather) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.gathers, g) {
		return
	}
	f.gathers = append(f.gathers, g)
	if len(f.gathers) > maxModels {
		f.gathers = slices.Delete(f.gathers, 0, 1)
	}
}

var seedOfCounts = maphash.MakeSeed()

func hashOf(counts []uint64) uint64 {
	var b []byte
	for _, n := range counts {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return maphash.Bytes(seedOfCounts, b)
}

// after returns the all-gathers of the tag before this one.
func (f *facts) after(tag uint32) []countGather {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []countGather
	for _, g := range f.gathers {
		if g.tag+1 == tag {
			found = append(found, g)
		}
	}
	return found
}

// addModel returns the model with these shapes, or nil if they are not the shapes of a model. Rank 0 sends the shapes
// over several connections, so the model may be known already; but a known model whose buckets were announced belongs
// to an earlier run.
func (f *facts) addModel(g countGather, shapes []byte) *model {
	numbers := make([]int64, len(shapes)/8)
	for i := range numbers {
		numbers[i] = int64(binary.LittleEndian.Uint64(shapes[8*i:]))
	}
	counts, ok := cutShapes(numbers, g.params)
	if !ok {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.models {
		if m.countGather == g && slices.Equal(m.counts, counts) && m.announced() == nil {
			return m
		}
	}
	m := &model{countGather: g, counts: counts, hash: hashOf(counts)}
	for _, n := range counts {
		m.total += n
	}
	if m.total > maxNumel {
		return nil
	}
	f.models = append(f.models, m)
	if len(f.models) > maxModels {
		f.models = slices.Delete(f.models, 0, 1)
	}
	return m
}

// all returns the models, the newest first.
func (f *facts) all() []*model {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(f.models)
	slices.Reverse(out)
	return out
}

// parseOrder reads the first announcement: every parameter once, then the number of buckets.
func (m *model) parseOrder(b []byte) (order []int, buckets int, ok bool) {
	if len(b) != 4*(m.params+1) {
		return nil, 0, false
	}
	seen := make([]bool, m.params)
	for ; len(b) > 4; b = b[4:] {
		i := int(int32(binary.LittleEndian.Uint32(b)))
		if i < 0 || i >= m.params || seen[i] {
			return nil, 0, false
		}
		seen[i] = true
		order = append(order, i)
	}
	buckets = int(int32(binary.LittleEndian.Uint32(b)))
	return order, buckets, buckets >= 1 && buckets <= min(m.params, maxBuckets)
}

// announce reads the second announcement, the number of parameters in each bucket. It reports whether b has these.
func (m *model) announce(order []int, buckets int, b []byte) bool {
	if len(b) != 4*buckets {
		return false
	}
	var elements []uint64
	for ; len(b) >= 4; b = b[4:] {
		n := int(int32(binary.LittleEndian.Uint32(b)))
		if n < 1 || n > len(order) {
			return false
		}
		sum := uint64(0)
		for _, i := range order[:n] {
			sum += m.counts[i]
		}
		elements, order = append(elements, sum), order[n:]
	}
	if len(order) != 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.buckets = elements
	return true
}
