package proxy

import (
	"cmp"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/tensor"
)

// applyShadow begins trials of the candidates that the settings name, and ends the trials of others.
func (p *Proxy) applyShadow(candidates []string) error {
	p.shadowing.Lock()
	defer p.shadowing.Unlock()
	if slices.Equal(candidates, p.candidates) {
		return nil
	}
	var next *shadow.Shadow
	if len(candidates) > 0 {
		var err error
		if next, err = shadow.New(shadow.Config{Codecs: candidates, Memory: p.config.ShadowMemory, Share: p.config.ShadowShare, Trial: p.trial}); err != nil {
			return err
		}
	}
	p.candidates = slices.Clone(candidates)
	if old := p.shadow.Swap(next); old != nil {
		old.Close()
	}
	return nil
}

// endShadow ends all trials.
func (p *Proxy) endShadow() {
	p.shadowing.Lock()
	defer p.shadowing.Unlock()
	if old := p.shadow.Swap(nil); old != nil {
		old.Close()
	}
	p.candidates = nil
}

// trial returns the trial of a candidate: a dry run with a rule for all tensors that may lose something.
func (p *Proxy) trial(text string, memory int64) (shadow.Trial, error) {
	codec, err := p.config.Codecs(text)
	if err != nil {
		return nil, err
	}
	chosen, err := policy.New([]policy.Rule{{Roles: []tensor.Role{tensor.Gradient, tensor.Aggregate, tensor.State}, Codec: text}}, p.config.Codecs)
	if err != nil {
		return nil, err
	}
	e, err := NewEstimator(Config{Codecs: p.config.Codecs, Settings: Settings{Policy: chosen}, Memory: memory, Residuals: memory / 2})
	if err != nil {
		return nil, err
	}
	return &trial{e, codec}, nil
}

// A trial is a shadow.Trial.
type trial struct {
	estimator *Estimator
	codec     codecs.Codec
}

func (t *trial) Close() { t.estimator.Close() }

func (t *trial) Line(f policy.Flow, peer string) shadow.Line {
	return &trialLine{t, t.estimator.FlowTo(f, peer)}
}

// A trialLine is a shadow.Line.
type trialLine struct {
	*trial
	flow *EstimatorFlow
}

func (l *trialLine) Close() { l.flow.Close() }

// Send sends a value piece by piece, as its app did.
func (l *trialLine) Send(t tensor.Tensor, value []byte, pieces []shadow.Piece) (m shadow.Measure, err error) {
	m.Raw = int64(len(value))
	before := l.flow.size(t.Role).Wire
	for _, p := range pieces {
		t.Hold = p.Hold
		if err = l.flow.Send(value[:p.Len], []parser.Segment{{Len: p.Len, Tensor: t}}); err != nil {
			return m, err
		}
		value, t.Off = value[p.Len:], t.Off+p.Len
	}
	m.Wire = l.flow.size(t.Role).Wire - before
	q := l.estimator.Quality(t.Role)
	m.Coding, m.Measured, m.Error, m.Residual, m.Behind = q.Coding, q.Measured, q.Error, q.Residual, q.Behind
	m.Exact = !q.Only(l.codec.String())
	return m, nil
}

// A ShadowReport tells the bytes that candidates would make of the bytes that this proxy sends. Its JSON names are stable.
type ShadowReport struct {
	Codecs  []string      `json:"codecs"`             // the candidates
	Share   float64       `json:"core_share"`         // of one core that trials may take
	Seconds float64       `json:"seconds"`            // since the proxy began
	Spent   float64       `json:"spent_core_seconds"` // on trials
	Values  int64         `json:"sampled_values"`
	Bytes   int64         `json:"sampled_bytes"`
	Dropped int64         `json:"dropped_values"` // of the sample: there was no room for them
	Groups  []ShadowGroup `json:"groups"`         // everything that was sent, by peer, job and role
}

// A ShadowGroup is the bytes of a job to a peer that have one role.
type ShadowGroup struct {
	Peer       string            `json:"peer"`
	Job        string            `json:"job"`
	Protocols  []string          `json:"protocols"`
	Role       string            `json:"role"`
	DTypes     []string          `json:"dtypes"`
	Raw        int64             `json:"raw_bytes"`  // of apps
	Wire       int64             `json:"wire_bytes"` // handed to the tunnel for them
	Candidates []ShadowCandidate `json:"candidates"` // none: nothing of the group was sampled, or nothing of it may be coded
}

// A ShadowCandidate is the result of one candidate on a ShadowGroup.
type ShadowCandidate struct {
	shadow.Result
	Predicted int64        `json:"predicted_bytes"` // in place of the group's WireBytes
	Money     *ShadowMoney `json:"money,omitempty"` // nil: the peer has no price
}

// ShadowMoney is the price of a ShadowCandidate's bytes, with the headers that the link has had for each byte so far.
type ShadowMoney struct {
	Currency string  `json:"currency"`
	Cost     float64 `json:"cost"`
	Saved    float64 `json:"saved"` // against the present way; negative: a loss
}

// Shadow reports on the candidates of Settings.Shadow. false: there are none.
func (p *Proxy) Shadow() (ShadowReport, bool) {
	s := p.shadow.Load()
	if s == nil {
		return ShadowReport{}, false
	}
	stats, results := s.Stats(), s.Results()
	r := ShadowReport{Codecs: results.Codecs, Share: p.config.ShadowShare, Seconds: time.Since(p.began).Seconds(), Spent: stats.Spent.Seconds(),
		Values: stats.Values, Bytes: stats.Bytes, Dropped: stats.Dropped, Groups: []ShadowGroup{}}
	tensors := p.env.Tensors.List()
	for _, sent := range p.config.Metrics.sums() {
		r.Groups = append(r.Groups, ShadowGroup{Peer: sent.peer, Job: sent.job, Role: sent.role.String(), Raw: sent.raw, Wire: sent.wire, Candidates: []ShadowCandidate{}})
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		own := ofGroup(g, tensors)
		g.takeVerbatim(own.raw, r.Groups)
		role, _ := tensor.ParseRole(g.Role)
		for k, x := range results.OfGroup(g.Peer, g.Job, role) {
			if x.Raw > 0 {
				g.Candidates = append(g.Candidates, ShadowCandidate{Result: x, Predicted: predicted(g, &own, results, k, x)})
			}
		}
	}
	return r, true
}

// sampleable are the tensors of a group that candidates may code, with their bytes so far.
type sampleable struct {
	tensors   []*TensorInfo
	raw, wire int64
}

func ofGroup(g *ShadowGroup, tensors []TensorInfo) (s sampleable) {
	for i := range tensors {
		t := &tensors[i]
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

// takeVerbatim takes over bytes of the group's tensors, raw in all, that travelled verbatim: they were counted for no role.
func (g *ShadowGroup) takeVerbatim(raw int64, groups []ShadowGroup) {
	for i := range groups {
		if u := &groups[i]; u.Peer == g.Peer && u.Job == g.Job && u.Role == tensor.Unknown.String() && g.Role != u.Role {
			if moved := min(raw-g.Raw, u.Raw, u.Wire); moved > 0 {
				g.Raw, g.Wire, u.Raw, u.Wire = g.Raw+moved, g.Wire+moved, u.Raw-moved, u.Wire-moved
			}
		}
	}
}

// predicted returns how many bytes candidate k would have handed to the tunnel for a group: of each tensor as of its sample, of a tensor that was not
// sampled as of all samples together, and of everything that no candidate may code as it was.
func predicted(g *ShadowGroup, own *sampleable, results *shadow.Results, k int, all shadow.Result) int64 {
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
func nameOf(t *TensorInfo) shadow.Name {
	role, _ := tensor.ParseRole(t.Role)
	n := shadow.Name{Job: t.Job, Protocol: t.Protocol, Direction: t.Direction, Key: t.Key, Role: role, Size: t.Bytes}
	if role == tensor.State {
		n.Key = t.Base
	}
	return n
}

// Tensors lists the tensors that this proxy has sent, largest first.
func (p *Proxy) Tensors() []TensorInfo {
	list := p.env.Tensors.List()
	p.addTrials(list)
	return list
}

// WithTrials adds the results of candidates to the largest tensors of a summary.
func (p *Proxy) WithTrials(s TensorSummary) TensorSummary {
	p.addTrials(s.Largest)
	return s
}

func (p *Proxy) addTrials(list []TensorInfo) {
	s := p.shadow.Load()
	if s == nil {
		return
	}
	results := s.Results()
	for i := range list {
		list[i].Shadow = results.Of(nameOf(&list[i]))
	}
}

// A sum is the bytes of a role of a job that were sent to a peer.
type sum struct {
	peer, job string
	role      tensor.Role
	raw, wire int64
}

// sums returns the bytes that Sent has counted, whatever the codec, in a fixed order.
func (m *Metrics) sums() (all []sum) {
	if m == nil {
		return nil
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for k, c := range m.sent {
		i := slices.IndexFunc(all, func(s sum) bool { return s.peer == k.peer && s.job == k.job && s.role == k.role })
		if i < 0 {
			i, all = len(all), append(all, sum{peer: k.peer, job: k.job, role: k.role})
		}
		all[i].raw += int64(counted(c.raw))
		all[i].wire += int64(counted(c.wire))
	}
	all = slices.DeleteFunc(all, func(s sum) bool { return s.raw == 0 && s.wire == 0 })
	slices.SortFunc(all, func(a, b sum) int {
		return cmp.Or(cmp.Compare(a.peer, b.peer), cmp.Compare(a.job, b.job), cmp.Compare(a.role, b.role))
	})
	return all
}
