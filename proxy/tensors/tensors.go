// Package tensors keeps a table of the tensors that a proxy sends: how each travels, why, and the gain of coding it.
package tensors

import (
	"cmp"
	"math"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/tensor"
)

// Info answers "why was this not compressed?" for one tensor that this proxy sends.
type Info struct {
	ID        uint64 `json:"id,string"` // names the tensor as long as the process lives and the table has it
	Peer      string `json:"peer"`      // to which it is sent
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

	From   string `json:"from,omitempty"`   // the sender: its name where the protocol tells, such as "worker 1", or else its address, of Gloo with the port
	To     string `json:"to,omitempty"`     // the receiver, likewise
	Number int    `json:"number,omitempty"` // among the tensors of its connection, in the order in which they first came, from 1
	Name   string `json:"name,omitempty"`   // where the protocol tells
	Shape  string `json:"shape,omitempty"`  // likewise, as "512×256"
	Proof  string `json:"proof,omitempty"`  // source of the role's proof: "the process's call", "the servers' update", "the app's messages" or "the user's word"

	Guarded  int64   `json:"guarded,omitempty"`  // blocks that travelled exactly since receivers were too far behind
	Sparsity float64 `json:"sparsity,omitempty"` // of a block, if the codec adapts it

	// Error is the norm of the loss of a block over the norm of the encoded values, and Residual the norm of its
	// residual over the norm of its value, both of the block that was measured last.
	Error    float64 `json:"relative_error,omitempty"`
	Residual float64 `json:"residual_ratio,omitempty"`

	// Shadow has the results of candidates on a sample of the tensor's values (package shadow); none: it was not
	// sampled.
	Shadow []shadow.Result `json:"shadow,omitempty"`

	Base       uint64        `json:"-"` // key of the tensor that predicts it
	Sampleable bool          `json:"-"` // candidates may code it
	Hosts      [2]netip.Addr `json:"-"` // of sender and receiver, whatever their names
}

// Bounds of a table, in lines. Beyond them the tensor whose last value began the longest ago is not listed any more;
// should it come again, its counts begin anew.
const (
	minTensors = 1 << 12
	maxTensors = 1 << 17
	lineBytes  = 900 // of memory that a line takes, with names
)

// share is the part of the memory of residuals that a table may take beside it, one in so many.
const share = 8

// Beside returns how many lines a table may have beside so many bytes of residuals, within the bounds of a table, and
// the bytes that the lines take.
func Beside(residuals int64) (lines int, takes int64) {
	lines = int(min(max(residuals/share/lineBytes, minTensors), maxTensors))
	return lines, int64(lines) * lineBytes
}

// An Origin says which connection a tensor comes by.
type Origin struct {
	Peer     string
	From, To netip.Addr
}

// A Label is the name of a tensor in the words of the job, as far as its protocol tells. Empty fields are not known.
type Label struct {
	From, To, Name, Shape string
}

// maxLabel bounds the bytes of each text of a Label, which comes from the job.
const maxLabel = 120

// A Table has a Record for each tensor that this proxy sends, over all connections. The zero Table is empty. It is safe
// for concurrent use.
type Table struct {
	Max int // lines, as Beside says; 0: 131,072. It must not change once the table is in use

	mu      sync.Mutex
	records lru.Cache[key, *Record]
	made    uint64    // records so far
	list    []*Record // all records when made was listed; nobody changes its elements
	listed  uint64
}

type key struct {
	peer  string
	flow  policy.Flow
	key   uint64
	role  tensor.Role
	dtype tensor.DType
	size  int // 0: it changes from value to value
}

// A Record is the table's line for one tensor. The senders of its connections set its fields.
type Record struct {
	key
	id        uint64
	origin    Origin
	history   policy.History
	mu        sync.Mutex    // guards the next seven
	by        policy.Policy // that chose for the last value
	last      tensor.Tensor // of the last value
	bytes     int           // of the last value
	codec     string
	reason    tensor.Reason
	label     Label
	number    int
	values    atomic.Int64
	guarded   atomic.Int64
	sparsity  atomic.Uint32 // bits of a float32
	raw, wire atomic.Int64

	relative, residual atomic.Uint32 // bits of float32
}

// Of returns the record of t, which is now the most recently used. All rows of a sparse tensor have one record. fresh:
// the record is new.
func (tt *Table) Of(o Origin, f policy.Flow, t tensor.Tensor) (r *Record, fresh bool) {
	k := key{o.Peer, f, t.Key, t.Role, t.DType, t.Size}
	if t.Keys != 0 {
		k.key, k.size = t.Keys, 0
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if r, ok := tt.records.Use(k); ok {
		return r, false
	}
	if tt.records.Len() >= cmp.Or(tt.Max, maxTensors) {
		oldest, _, _ := tt.records.Oldest()
		tt.records.Delete(oldest)
	}
	tt.made++
	r = &Record{key: k, id: tt.made, origin: o}
	tt.records.Put(k, r)
	return r, true
}

// lastNaming is the last value at which a tensor is named.
const lastNaming = 1 << 10

// Unnamed reports whether the tensor should be named with its next value: the first, and after twice as many again and
// again, since a protocol may learn the name later.
func (r *Record) Unnamed() bool {
	n := r.values.Load()
	return n < lastNaming && n&(n+1) == 0
}

// Named notes the name of a tensor, and its number among the tensors of its connection; 0: as it was.
func (r *Record) Named(l Label, number int) {
	for _, text := range []*string{&l.From, &l.To, &l.Name, &l.Shape} {
		if len(*text) > maxLabel {
			*text = strings.ToValidUTF8((*text)[:maxLabel], "") + "…"
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if number > 0 {
		r.number = number
	}
	if r.label == l {
		return
	}
	for _, text := range []*string{&l.From, &l.To, &l.Name, &l.Shape} {
		*text = strings.Clone(*text) // it may be part of a whole message
	}
	r.label = l
}

// History returns the results of coding the tensor, for the policy.
func (r *Record) History() *policy.History { return &r.history }

// Chose notes how the next value of the tensor, t, travels by the choice of a policy, which then sees the results.
func (r *Record) Chose(by policy.Policy, t tensor.Tensor, codec string, reason tensor.Reason) {
	r.values.Add(1)
	r.mu.Lock()
	r.by, r.last = by, t
	r.last.Placed = nil // a record must not keep samples of weights
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

// Guarded notes that a block of the tensor travels exactly since receivers are too far behind, and reports whether it
// is the first.
func (r *Record) Guarded() (first bool) { return r.guarded.Add(1) == 1 }

// Adapted notes the sparsity of a block.
func (r *Record) Adapted(s float32) { r.sparsity.Store(math.Float32bits(s)) }

// Sent notes that raw bytes of the tensor have left as wire bytes.
func (r *Record) Sent(raw, wire int) {
	r.raw.Add(int64(raw))
	r.wire.Add(int64(wire))
}

// Erred notes the relative error of a block.
func (r *Record) Erred(relative float64) { r.relative.Store(math.Float32bits(float32(relative))) }

// Drifted notes the norm of a block's residual over that of its value, and the block's relative error.
func (r *Record) Drifted(ratio, relative float64) {
	r.residual.Store(math.Float32bits(float32(ratio)))
	r.Erred(relative)
}
