package tensors

import (
	"cmp"
	"container/heap"
	"math"
	"net/netip"
	"slices"

	"github.com/gradproxy/gradproxy/proxy/shadow"
)

// A Group sums up tensors that are alike.
type Group struct {
	Peer      string `json:"peer"`
	Job       string `json:"job"`
	Role      string `json:"role"`
	Codec     string `json:"codec"` // of the last values
	Count     int    `json:"count"`
	RawBytes  int64  `json:"raw_bytes"`
	WireBytes int64  `json:"wire_bytes"`
}

// A Summary has the tensors that have sent most bytes, and the others in groups.
type Summary struct {
	Largest []Info  // the first of List
	Groups  []Group // of the tensors that are not in Largest, the largest first
	Count   int     // of all tensors
}

// maxGroups bounds the groups of a Summary.
const maxGroups = 256

// all returns all records, in no order. The caller must not change them. The list is made anew only when a tensor has
// come, so that connections need not wait for it at each call.
func (tt *Table) all() []*Record {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tt.listed != tt.made {
		list := make([]*Record, 0, tt.records.Len())
		for _, r := range tt.records.FromNewest() {
			list = append(list, r)
		}
		tt.list, tt.listed = list, tt.made
	}
	return tt.list
}

// List returns all lines, largest first.
func (tt *Table) List() []Info { return tt.Summary("", math.MaxInt).Largest }

// Summary lists the tensors that have sent most raw bytes to a peer, at most limit, largest first; "": to all peers.
func (tt *Table) Summary(peer string, limit int) Summary {
	records := tt.all()
	largest := make(byRaw, 0, min(limit, len(records)))
	groups := map[Group]*Group{}
	s := Summary{}
	for _, r := range records {
		if peer != "" && r.peer != peer {
			continue
		}
		s.Count++
		x := ranked{r, r.raw.Load()}
		switch {
		case len(largest) < limit:
			heap.Push(&largest, x)
			continue
		case limit > 0 && largest[0].less(x):
			largest[0], x = x, largest[0]
			heap.Fix(&largest, 0)
		}
		x.record.join(groups)
	}
	for _, x := range largest {
		s.Largest = append(s.Largest, x.record.info())
	}
	slices.SortFunc(s.Largest, func(a, b Info) int {
		return cmp.Or(cmp.Compare(b.RawBytes, a.RawBytes), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Bytes, b.Bytes))
	})
	for _, g := range groups {
		s.Groups = append(s.Groups, *g)
	}
	slices.SortFunc(s.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.RawBytes, a.RawBytes), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Role, b.Role), cmp.Compare(a.Codec, b.Codec))
	})
	return s
}

// ByID returns the line of a tensor; false: the table does not have it.
func (tt *Table) ByID(id uint64) (Info, bool) {
	for _, r := range tt.all() {
		if r.id == id {
			return r.info(), true
		}
	}
	return Info{}, false
}

// join adds the record to the group of its like. Where there are too many groups it joins the one without a job and a
// codec.
func (r *Record) join(groups map[Group]*Group) {
	r.mu.Lock()
	codec := r.codec
	r.mu.Unlock()
	k := Group{Peer: r.peer, Job: r.flow.Job, Role: r.role.String(), Codec: codec}
	g := groups[k]
	if g == nil && len(groups) >= maxGroups {
		k = Group{Peer: r.peer, Role: r.role.String()}
		g = groups[k]
	}
	if g == nil {
		g = new(Group)
		*g = k
		groups[k] = g
	}
	g.Count++
	g.RawBytes += r.raw.Load()
	g.WireBytes += r.wire.Load()
}

// info returns the record's line.
func (r *Record) info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	float := func(bits uint32) float64 { return float64(math.Float32frombits(bits)) }
	_, sampleable := shadow.IdentityOf("", r.flow, &r.last)
	i := Info{
		Base: r.last.Base, Sampleable: sampleable, Hosts: [2]netip.Addr{r.origin.From, r.origin.To},
		ID: r.id, Peer: r.peer, Job: r.flow.Job, Protocol: r.flow.Protocol, Direction: r.flow.Direction.String(),
		Key: r.key.key, Bytes: r.bytes, DType: r.dtype.String(), Role: r.role.String(),
		Evidence: r.last.Evidence(), Proof: r.last.ProvedBy(), Codec: r.codec, Reason: r.reason.String(),
		Values: r.values.Load(), RawBytes: r.raw.Load(), WireBytes: r.wire.Load(),
		From: cmp.Or(r.label.From, hostOf(r.origin.From)), To: cmp.Or(r.label.To, hostOf(r.origin.To)), Number: r.number, Name: r.label.Name, Shape: r.label.Shape,
		Guarded: r.guarded.Load(), Sparsity: float(r.sparsity.Load()), Error: float(r.relative.Load()), Residual: float(r.residual.Load()),
	}
	return i
}

func hostOf(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// A ranked record has the raw bytes by which it is ordered, which change meanwhile.
type ranked struct {
	record *Record
	raw    int64
}

func (x ranked) less(y ranked) bool {
	return x.raw < y.raw || x.raw == y.raw && x.record.key.key > y.record.key.key
}

// byRaw is a heap of records, the smallest first.
type byRaw []ranked

func (h byRaw) Len() int           { return len(h) }
func (h byRaw) Less(i, j int) bool { return h[i].less(h[j]) }
func (h byRaw) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byRaw) Push(x any)        { *h = append(*h, x.(ranked)) }
func (h *byRaw) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
