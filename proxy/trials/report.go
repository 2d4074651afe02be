package trials

import (
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Report says how many bytes the candidates would make of the bytes that this proxy sends. Its JSON names are stable.
type Report struct {
	Codecs  []string `json:"codecs"`             // the candidates
	Share   float64  `json:"core_share"`         // of one core that trials may take
	Seconds float64  `json:"seconds"`            // since the proxy began
	Spent   float64  `json:"spent_core_seconds"` // on trials
	Values  int64    `json:"sampled_values"`
	Bytes   int64    `json:"sampled_bytes"`
	Dropped int64    `json:"dropped_values"` // of the sample: there was no room for them
	Queued  int64    `json:"queued_bytes"`   // of the sample: they have not been tried yet
	Groups  []Group  `json:"groups"`         // everything that was sent, by peer, job and role
}

// A Group has the bytes of one role that a job has sent to a peer.
type Group struct {
	Peer       string      `json:"peer"`
	Job        string      `json:"job"`
	Protocols  []string    `json:"protocols"`
	Role       string      `json:"role"`
	DTypes     []string    `json:"dtypes"`
	Raw        int64       `json:"raw_bytes"`      // of apps
	Wire       int64       `json:"wire_bytes"`     // handed to the tunnel for them
	Moved      int64       `json:"moved_bytes"`    // of apps, that candidates may code, since these candidates are tried
	Moving     float64     `json:"moving_seconds"` // in which they moved
	Candidates []Candidate `json:"candidates"`     // none: nothing of the group was sampled, or nothing of it may be coded
}

// A Candidate is the result of one candidate on a Group.
type Candidate struct {
	shadow.Result
	Predicted int64  `json:"predicted_bytes"` // in place of the group's WireBytes
	Money     *Money `json:"money,omitempty"` // nil: the peer has no price
}

// Money is the price of a Candidate's bytes, with the headers that the link has had for each byte so far.
type Money struct {
	Currency string  `json:"currency"`
	Cost     float64 `json:"cost"`
	Saved    float64 `json:"saved"` // against the present way; negative: a loss
}

// A Sent has the bytes of one role that a job has sent to a peer: the raw bytes of the apps, and the wire bytes that
// were handed to the tunnel for them.
type Sent struct {
	Peer, Job string
	Role      tensor.Role
	Raw, Wire int64
}

// Report reports on the candidates. sent returns everything that was sent, list the tensors with their bytes; both are
// called only where there are candidates, after the trials' results were taken. false: there are none.
func (t *Trials) Report(sent func() []Sent, list func() []tensors.Info) (Report, bool) {
	s := t.current.Load()
	if s == nil {
		return Report{}, false
	}
	stats, results := s.Stats(), s.Results()
	r := Report{Codecs: results.Codecs, Share: t.config.Share, Seconds: time.Since(t.began).Seconds(), Spent: stats.Spent.Seconds(),
		Values: stats.Values, Bytes: stats.Bytes, Dropped: stats.Dropped, Queued: stats.Queued, Groups: []Group{}}
	infos := list()
	for _, x := range sent() {
		r.Groups = append(r.Groups, Group{Peer: x.Peer, Job: x.Job, Role: x.Role.String(), Raw: x.Raw, Wire: x.Wire, Candidates: []Candidate{}})
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		own := ofGroup(g, infos)
		g.takeVerbatim(own.raw, r.Groups)
		role, _ := tensor.ParseRole(g.Role)
		moved := results.Moved(g.Peer, g.Job, role)
		g.Moved, g.Moving = moved.Bytes, moved.Time.Seconds()
		for k, x := range results.OfGroup(g.Peer, g.Job, role) {
			if x.Raw > 0 {
				g.Candidates = append(g.Candidates, Candidate{Result: x, Predicted: predicted(g, &own, results, k, x)})
			}
		}
	}
	return r, true
}

// AddTo adds the results of the candidates to a list of tensors.
func (t *Trials) AddTo(list []tensors.Info) {
	s := t.current.Load()
	if s == nil {
		return
	}
	results := s.Results()
	for i := range list {
		list[i].Shadow = results.Of(nameOf(&list[i]))
	}
}

// sampleable are the tensors of a group that candidates may code, with their bytes so far.
type sampleable struct {
	tensors   []*tensors.Info
	raw, wire int64
}

func ofGroup(g *Group, list []tensors.Info) (s sampleable) {
	for i := range list {
		t := &list[i]
		if t.Peer != g.Peer || t.Job != g.Job || t.Role != g.Role {
			continue
		}
		g.Protocols, g.DTypes = with(g.Protocols, t.Protocol), with(g.DTypes, t.DType)
		if t.Sampleable {
			s.tensors, s.raw, s.wire = append(s.tensors, t), s.raw+t.RawBytes, s.wire+t.WireBytes
		}
	}
	return s
}

// takeVerbatim takes over bytes of the group's tensors, raw in all, that travelled verbatim: they were counted for no
// role.
func (g *Group) takeVerbatim(raw int64, groups []Group) {
	for i := range groups {
		if u := &groups[i]; u.Peer == g.Peer && u.Job == g.Job && u.Role == tensor.Unknown.String() && g.Role != u.Role {
			if moved := min(raw-g.Raw, u.Raw, u.Wire); moved > 0 {
				g.Raw, g.Wire, u.Raw, u.Wire = g.Raw+moved, g.Wire+moved, u.Raw-moved, u.Wire-moved
			}
		}
	}
}

// predicted returns how many bytes candidate k would have handed to the tunnel for a group: of each tensor as of its
// sample, of a tensor that was not sampled as of all samples together, and of everything that no candidate may code as
// it was.
func predicted(g *Group, own *sampleable, results *shadow.Results, k int, all shadow.Result) int64 {
	wire := max(0, float64(g.Wire-own.wire))
	for _, t := range own.tensors {
		from := &all
		if of := results.Of(nameOf(t)); len(of) > k && of[k].Raw > 0 {
			from = &of[k]
		}
		wire += float64(t.RawBytes) * float64(from.Wire) / float64(from.Raw)
	}
	return int64(wire)
}

func with(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// nameOf returns the name by which a Shadow knows a tensor.
func nameOf(t *tensors.Info) shadow.Name {
	role, _ := tensor.ParseRole(t.Role)
	n := shadow.Name{Job: t.Job, Protocol: t.Protocol, Direction: t.Direction, Key: t.Key, Role: role, Size: t.Bytes}
	if role == tensor.State {
		n.Key = t.Base
	}
	return n
}
