package shadow

import "github.com/gradproxy/gradproxy/tensor"

// A Result has the figures of a candidate for the sampled values of one tensor, or of many. Its JSON names are stable.
type Result struct {
	Codec    string  `json:"codec"`
	Raw      int64   `json:"raw_bytes"` // of the sample
	Wire     int64   `json:"wire_bytes"`
	Early    int64   `json:"early_bytes"`           // of Raw, of values that came while the residual was still growing: later ones take more
	Error    float64 `json:"relative_error"`        // mean norm of a block's loss over the norm of the value that was encoded
	Residual float64 `json:"residual_ratio"`        // mean norm of a block's residual over the norm of its value
	Behind   int     `json:"guarded_blocks"`        // blocks that travelled exactly since receivers were too far behind
	Near     int64   `json:"near_guard_bytes"`      // of Raw, of tensors whose residual is near the guard's limit: the guard may act on the path though it has not acted in the trial
	Coding   float64 `json:"coding_seconds_per_gb"` // processor time of one core
}

// resultOf returns the Result of a candidate's sum.
func resultOf(codec string, m *Measure) Result {
	r := Result{Codec: codec, Raw: m.Raw, Wire: m.Wire, Early: m.Early, Behind: m.Behind, Near: m.Near}
	if m.Measured > 0 {
		r.Error, r.Residual = m.Error/float64(m.Measured), m.residual()
	}
	if m.Raw > 0 {
		r.Coding = m.Coding.Seconds() / float64(m.Raw) * 1e9
	}
	return r
}

// A Name names a tensor as an Identity does, but for its peer.
type Name struct {
	Job, Protocol, Direction string
	Key                      uint64
	Role                     tensor.Role
	Size                     int
}

// Results has the results of a Shadow at one time.
type Results struct {
	Codecs []string
	names  map[Name][]Measure
	groups map[group][]Measure
	moved  map[group]Moved
}

// Results returns the figures of all candidates so far.
func (s *Shadow) Results() *Results {
	r := &Results{Codecs: s.config.Codecs, names: map[Name][]Measure{}, groups: map[group][]Measure{}, moved: map[group]Moved{}}
	s.mu.Lock() // for a list only: senders wait for it
	windows := make([]*window, 0, s.known.Len())
	for _, w := range s.known.FromNewest() {
		windows = append(windows, w)
	}
	for g, m := range s.moved {
		r.moved[g] = *m
	}
	s.mu.Unlock()
	s.figures.Lock()
	defer s.figures.Unlock()
	for _, w := range windows {
		id := &w.id
		n := Name{id.Flow.Job, id.Flow.Protocol, id.Flow.Direction.String(), id.Key, id.Role, id.Size}
		g := group{id.Peer, id.Flow.Job, id.Role}
		for i := range s.config.Codecs {
			if m := w.sum(i); m.Raw > 0 {
				m.near(s.trials[i].Limit())
				addTo(r.names, n, i, len(s.config.Codecs), &m)
				addTo(r.groups, g, i, len(s.config.Codecs), &m)
			}
		}
	}
	return r
}

func addTo[K comparable](to map[K][]Measure, k K, i, n int, m *Measure) {
	if to[k] == nil {
		to[k] = make([]Measure, n)
	}
	to[k][i].add(m)
}

// Of returns the results of one tensor, one for each of Codecs. It returns nil if the tensor was not sampled, or not
// for long enough.
func (r *Results) Of(n Name) []Result { return r.list(r.names[n]) }

// OfGroup returns the results of all tensors of a job and role to a peer together, one for each of Codecs.
func (r *Results) OfGroup(peer, job string, role tensor.Role) []Result {
	return r.list(r.groups[group{peer, job, role}])
}

// Moved returns the bytes of a job and role that went to a peer and that candidates may code, and the time in which
// they moved.
func (r *Results) Moved(peer, job string, role tensor.Role) Moved {
	return r.moved[group{peer, job, role}]
}

func (r *Results) list(sums []Measure) (list []Result) {
	for i := range sums {
		list = append(list, resultOf(r.Codecs[i], &sums[i]))
	}
	return list
}
