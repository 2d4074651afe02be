// Package tensors keeps a table of the tensors that a proxy sends: how each travels, why, and the gain of coding it.
package tensors

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Info answers "why was this not compressed?" for one tensor that this proxy sends.
type Info struct {
	Job       string `json:"job"`
	Protocol  string `json:"protocol"`
	Direction string `json:"direction"`
	Key       uint64 `json:"key,string"` // of rows that of their index; 0: the protocol gives no identity; tensors of one role, type and size are one
	Bytes     int    `json:"bytes"`      // of one value; of rows, whose number changes, and their keys: of the last
	DType     string `json:"dtype"`
	Role      string `json:"role"`
	Evidence  string `json:"evidence"` // the proof of role and type, or the reason for an unknown one
	Codec     string `json:"codec"`    // of the last value
	Reason    string `json:"reason"`   // why not as a rule says
	Values    int64  `json:"values"`   // how many came
	RawBytes  int64  `json:"raw_bytes"`
	WireBytes int64  `json:"wire_bytes"`

	Guarded  int64   `json:"guarded,omitempty"`  // blocks that travelled exactly since receivers were too far behind
	Sparsity float64 `json:"sparsity,omitempty"` // of a block, if the codec adapts it
}

// maxTensors bounds the table. Beyond it the tensor whose last value began the longest ago is not listed any more; should
// it come again, its counts begin anew.
const maxTensors = 1 << 14

// A Table has a Record for each tensor that this proxy sends, over all connections. The zero Table is empty. It is safe
// for concurrent use.
type Table struct {
	mu      sync.Mutex
	records lru.Cache[key, *Record]
}

type key struct {
	flow  policy.Flow
	key   uint64
	role  tensor.Role
	dtype tensor.DType
	size  int // 0: it changes from value to value
}

// A Record is the table's line for one tensor. The senders of its connections set its fields.
type Record struct {
	key
	history   policy.History
	mu        sync.Mutex    // guards the next five
	by        policy.Policy // that chose for the last value
	last      tensor.Tensor // of the last value
	bytes     int           // of the last value
	codec     string
	reason    tensor.Reason
	values    atomic.Int64
	guarded   atomic.Int64
	sparsity  atomic.Uint32 // bits of a float32
	raw, wire atomic.Int64
}

// Of returns the record of t, which is now the most recently used. All rows of a sparse tensor have one record.
func (tt *Table) Of(f policy.Flow, t tensor.Tensor) *Record {
	k := key{f, t.Key, t.Role, t.DType, t.Size}
	if t.Keys != 0 {
		k.key, k.size = t.Keys, 0
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if r, ok := tt.records.Use(k); ok {
		return r
	}
	if tt.records.Len() >= maxTensors {
		oldest, _, _ := tt.records.Oldest()
		tt.records.Delete(oldest)
	}
	r := &Record{key: k}
	tt.records.Put(k, r)
	return r
}

// History returns the results of coding the tensor, for the policy.
func (r *Record) History() *policy.History { return &r.history }

// Chose notes how the next value of the tensor, t, travels by the choice of a policy, which then sees the results.
func (r *Record) Chose(by policy.Policy, t tensor.Tensor, codec string, reason tensor.Reason) {
	r.values.Add(1)
	r.mu.Lock()
	r.by, r.last = by, t
	r.bytes = t.Size
	r.codec, r.reason = codec, reason
	r.mu.Unlock()
}

// Saw tells the policy that a codec has made wire bytes of raw bytes of the tensor, in that time.
func (r *Record) Saw(codec string, raw, wire int, took time.Duration) {
	r.mu.Lock()
	by, t := r.by, r.last
	r.mu.Unlock()
	if by == nil { // no value was chosen for
		r.history.Saw(codec, raw, wire, took)
		return
	}
	by.Saw(r.flow, t, &r.history, codec, raw, wire, took)
}

// Takes returns how long coding n bytes by a codec is likely to take a core.
func (r *Record) Takes(codec string, n int) time.Duration { return r.history.Takes(codec, n) }

// Refused notes that a block of the value may not travel as was chosen.
func (r *Record) Refused(why tensor.Reason) {
	r.mu.Lock()
	r.reason = why
	r.mu.Unlock()
}

// Guarded notes that a block of the tensor travels exactly since receivers are too far behind, and reports whether it is the first.
func (r *Record) Guarded() (first bool) { return r.guarded.Add(1) == 1 }

// Adapted notes the sparsity of a block.
func (r *Record) Adapted(s float32) { r.sparsity.Store(math.Float32bits(s)) }

// Sent notes that raw bytes of the tensor have left as wire bytes.
func (r *Record) Sent(raw, wire int) {
	r.raw.Add(int64(raw))
	r.wire.Add(int64(wire))
}

// List returns all lines, largest first.
func (tt *Table) List() []Info {
	tt.mu.Lock()
	records := make([]*Record, 0, tt.records.Len())
	for _, r := range tt.records.FromNewest() {
		records = append(records, r)
	}
	tt.mu.Unlock()
	infos := make([]Info, len(records))
	for i, r := range records {
		r.mu.Lock()
		infos[i] = Info{
			Job: r.flow.Job, Protocol: r.flow.Protocol, Direction: r.flow.Direction.String(),
			Key: r.key.key, Bytes: r.bytes, DType: r.dtype.String(), Role: r.role.String(),
			Evidence: r.last.Evidence(), Codec: r.codec, Reason: r.reason.String(),
			Values: r.values.Load(), RawBytes: r.raw.Load(), WireBytes: r.wire.Load(),
			Guarded: r.guarded.Load(), Sparsity: float64(math.Float32frombits(r.sparsity.Load())),
		}
		r.mu.Unlock()
	}
	slices.SortFunc(infos, func(a, b Info) int {
		return cmp.Or(cmp.Compare(b.RawBytes, a.RawBytes), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Bytes, b.Bytes))
	})
	return infos
}
