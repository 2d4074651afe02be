package proxy

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// TensorInfo answers "why was this not compressed?" for one tensor that this proxy sends.
type TensorInfo struct {
	Job       string `json:"job"`
	Protocol  string `json:"protocol"`
	Direction string `json:"direction"`
	Key       uint64 `json:"key,string"` // of rows that of their index; 0: the protocol gives no identity; tensors of one role, type and size are one
	Bytes     int    `json:"bytes"`      // of one value; of rows, whose number changes, and their keys: of the last
	DType     string `json:"dtype"`
	Role      string `json:"role"`
	Evidence  string `json:"evidence"` // what the parser says of role and type
	Codec     string `json:"codec"`    // of the last value
	Reason    string `json:"reason"`   // why not as a rule says
	Values    int64  `json:"values"`   // how many came
	RawBytes  int64  `json:"raw_bytes"`
	WireBytes int64  `json:"wire_bytes"`
}

// maxTensors bounds the table. Beyond it the tensor whose last value began the longest ago is not listed any more; should
// it come again, its counts begin anew.
const maxTensors = 1 << 14

// A tensorTable holds what is known of the tensors that this proxy sends, over all connections. The zero tensorTable is
// empty.
type tensorTable struct {
	mu      sync.Mutex
	records map[recordKey]*list.Element
	recent  list.List // of *tensorRecord, the most recently used first
}

type recordKey struct {
	flow  policy.Flow
	key   uint64
	role  tensor.Role
	dtype tensor.DType
	size  int // 0: it changes from value to value
}

// A tensorRecord is the table's row. Its fields are set by the senders of its connections.
type tensorRecord struct {
	recordKey
	gain      policy.Gain
	mu        sync.Mutex // guards the next four
	bytes     int        // of the last value
	codec     string
	reason    tensor.Reason
	evidence  tensor.Reason
	values    atomic.Int64
	raw, wire atomic.Int64
}

// of returns the row of t, which is now the most recently used. The rows of a sparse tensor are one, whichever they are.
func (tt *tensorTable) of(f policy.Flow, t tensor.Tensor) *tensorRecord {
	k := recordKey{f, t.Key, t.Role, t.DType, t.Size}
	if t.Keys != 0 {
		k.key, k.size = t.Keys, 0
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if e := tt.records[k]; e != nil {
		tt.recent.MoveToFront(e)
		return e.Value.(*tensorRecord)
	}
	if tt.records == nil {
		tt.records = map[recordKey]*list.Element{}
	}
	if len(tt.records) >= maxTensors {
		delete(tt.records, tt.recent.Remove(tt.recent.Back()).(*tensorRecord).recordKey)
	}
	r := &tensorRecord{recordKey: k}
	tt.records[k] = tt.recent.PushFront(r)
	return r
}

// chose notes how the next value travels, which has so many bytes.
func (r *tensorRecord) chose(bytes int, codec string, reason, evidence tensor.Reason) {
	r.values.Add(1)
	r.mu.Lock()
	r.bytes = bytes
	r.codec, r.reason, r.evidence = codec, reason, evidence
	r.mu.Unlock()
}

// refused notes that a block of the value may not travel as was chosen.
func (r *tensorRecord) refused(why tensor.Reason) {
	r.mu.Lock()
	r.reason = why
	r.mu.Unlock()
}

// sent notes bytes of the tensor and what became of them.
func (r *tensorRecord) sent(raw, wire int) {
	r.raw.Add(int64(raw))
	r.wire.Add(int64(wire))
}

// list returns the rows, largest first.
func (tt *tensorTable) list() []TensorInfo {
	tt.mu.Lock()
	records := make([]*tensorRecord, 0, len(tt.records))
	for e := tt.recent.Front(); e != nil; e = e.Next() {
		records = append(records, e.Value.(*tensorRecord))
	}
	tt.mu.Unlock()
	infos := make([]TensorInfo, len(records))
	for i, r := range records {
		r.mu.Lock()
		infos[i] = TensorInfo{
			Job: r.flow.Job, Protocol: r.flow.Protocol, Direction: r.flow.Direction.String(),
			Key: r.key, Bytes: r.bytes, DType: r.dtype.String(), Role: r.role.String(),
			Evidence: r.evidence.String(), Codec: r.codec, Reason: r.reason.String(),
			Values: r.values.Load(), RawBytes: r.raw.Load(), WireBytes: r.wire.Load(),
		}
		r.mu.Unlock()
	}
	slices.SortFunc(infos, func(a, b TensorInfo) int {
		return cmp.Or(cmp.Compare(b.RawBytes, a.RawBytes), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Bytes, b.Bytes))
	})
	return infos
}
