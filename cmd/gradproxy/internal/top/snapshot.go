// Package top shows the traffic of a running proxy as it changes: its links and its busiest tensors, on a terminal or
// as JSON.
//
// A Sampler makes Snapshots of the answers of the proxy's admin address, Print writes Snapshots as JSON, and Show keeps
// them on a terminal, as the lines that text makes of them.
package top

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/adminclient"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/history"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

// A Snapshot has the traffic of a proxy at one time, and the rates since the Snapshot before. Its JSON names are
// stable.
type Snapshot struct {
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"` // since the Snapshot before, for which the rates are
	*adminclient.Status
	Carried []admin.Peer   `json:"state"`            // of all peers, with their carriers
	Jobs    []Job          `json:"jobs"`             // by peer
	Plans   []admin.Budget `json:"plans"`            // budgets of the day
	Shadow  *trials.Report `json:"shadow,omitempty"` // nil: there are no candidates
	Links   []Link         `json:"links"`            // in the order of Status.Peers
	Tensors []Tensor       `json:"tensors"`          // the busiest, by their rates
	Listed  int            `json:"tensors_in_all"`

	fault error          // why an answer below is an old one; nil: none is
	past  *history.Table // the last that was asked for; nil: none was

	// chosen is the last answer about a tensor, which need not be the one that is wished now; nil: there is none, or
	// the tensor is not listed any more.
	chosen *admin.Answer
}

// A wish says which answers a terminal needs beside the Snapshot's. It is safe for concurrent use.
type wish struct {
	past   atomic.Bool
	tensor atomic.Uint64 // its id; 0: none
}

// A Link has the rates of the bytes between this site and a peer, in bytes per second.
type Link struct {
	Peer     string  `json:"peer"`
	Raw      float64 `json:"raw_bytes_per_second"`       // that apps sent
	Sent     float64 `json:"sent_bytes_per_second"`      // that the link carried there
	Got      float64 `json:"delivered_bytes_per_second"` // that apps got
	Received float64 `json:"received_bytes_per_second"`  // that the link carried here
	Ratio    float64 `json:"ratio"`                      // of all bytes so far, both ways together; 0: unknown
}

// A Job is the bytes of a job between this site and a peer.
type Job struct {
	proxy.Traffic
	RawRate       float64 `json:"raw_bytes_per_second"` // of the last whole second
	SentRate      float64 `json:"sent_bytes_per_second"`
	DeliveredRate float64 `json:"delivered_bytes_per_second"`
	ReceivedRate  float64 `json:"received_bytes_per_second"`
}

// A Tensor is one tensor that this site sends.
type Tensor struct {
	proxy.TensorInfo
	Rate  float64 `json:"raw_bytes_per_second"`
	Ratio float64 `json:"ratio"` // raw bytes over the bytes that the tunnel was handed; 0: unknown
}

// An identity has the fields that tell a tensor from others.
type identity struct {
	Job, Protocol, Direction string
	Key                      uint64
	Bytes                    int // 0: the tensor has a key, and its size may change
	DType, Role              string
}

func (t *Tensor) identity() identity {
	id := identity{Job: t.Job, Protocol: t.Protocol, Direction: t.Direction, Key: t.Key, DType: t.DType, Role: t.Role}
	if t.Key == 0 {
		id.Bytes = t.Bytes
	}
	return id
}

// A Sampler asks one proxy again and again.
type Sampler struct {
	Proxy *adminclient.Proxy
	Limit int // of tensors in a Snapshot; 0: there is none

	last    *adminclient.Status
	at      time.Time
	tensors map[identity]int64 // raw bytes

	shadow *trials.Report // of the last question,
	asked  time.Time      // at that time

	wish    wish
	past    *history.Table // likewise
	pastAt  time.Time
	chosen  *admin.Answer // likewise, of the tensor with that id
	id      uint64
	answers time.Time
}

// seldom is how often the candidates' results and histories are asked for, which take a proxy of many tensors some time
// to add up.
const seldom = 5 * time.Second

// askedTensors is how many tensors a Sampler asks for: the ones that have sent most bytes so far. It shows the busiest
// of these. To list thousands each second would be a load on the proxy.
const askedTensors = 1000

// Next asks the proxy. The rates of the first Snapshot are 0.
func (s *Sampler) Next(ctx context.Context) (*Snapshot, error) {
	status, err := s.Proxy.Status(ctx)
	if err != nil {
		return nil, err
	}
	ask := 0
	if s.Limit > 0 {
		ask = max(s.Limit, askedTensors)
	}
	tensors, listed, err := s.Proxy.Tensors(ctx, ask)
	if err != nil {
		return nil, err
	}
	live, err := s.Proxy.Live(ctx)
	if err != nil {
		return nil, err
	}
	if now := time.Now(); now.Sub(s.asked) >= seldom {
		if s.shadow, err = s.Proxy.Shadow(ctx); err != nil {
			return nil, err
		}
		s.asked = now
	}
	x := s.next(time.Now(), status, tensors)
	x.Listed, x.Shadow = listed, s.shadow
	x.take(live)
	x.fault = s.grant(ctx, x.Time)
	x.past, x.chosen = s.past, s.chosen
	return x, nil
}

// grant asks for the answers that the terminal wishes for.
func (s *Sampler) grant(ctx context.Context, now time.Time) (err error) {
	if s.wish.past.Load() && now.Sub(s.pastAt) >= seldom {
		if s.past, err = s.Proxy.History(ctx, pastStep); err != nil {
			return err
		}
		s.pastAt = now
	}
	if id := s.wish.tensor.Load(); id != 0 && (id != s.id || now.Sub(s.answers) >= seldom) {
		if s.chosen, err = s.Proxy.Tensor(ctx, id); err != nil {
			return err
		}
		s.id, s.answers = id, now
	}
	return nil
}

// take takes in the state of peers, jobs and budgets.
func (x *Snapshot) take(l *admin.Live) {
	x.Carried, x.Jobs, x.Plans = append([]admin.Peer{}, l.Peers...), []Job{}, append([]admin.Budget{}, l.Budgets...)
	for _, t := range l.Jobs {
		j := Job{Traffic: t}
		if len(l.Points) > 0 && len(l.Points[0].Times) > 1 {
			whole := len(l.Points[0].Times) - 2 // the newest slot is still growing
			for _, p := range l.Points[0].Series {
				if p.Peer == t.Peer && p.Job == t.Job && !p.Link {
					j.RawRate, j.SentRate, j.DeliveredRate, j.ReceivedRate = float64(p.Raw[whole]), float64(p.Sent[whole]), float64(p.Delivered[whole]), float64(p.Received[whole])
				}
			}
		}
		x.Jobs = append(x.Jobs, j)
	}
}

func (s *Sampler) next(now time.Time, status *adminclient.Status, tensors []proxy.TensorInfo) *Snapshot {
	x := &Snapshot{Time: now, Status: status, Links: []Link{}, Tensors: []Tensor{}}
	before := map[string]adminclient.Peer{}
	if s.last != nil {
		x.Seconds = now.Sub(s.at).Seconds()
		for _, p := range s.last.Peers {
			before[p.Name] = p
		}
	}
	for _, p := range status.Peers {
		old := before[p.Name]
		x.Links = append(x.Links, Link{p.Name, rate(p.Raw, old.Raw, x.Seconds), rate(p.Network.Sent, old.Network.Sent, x.Seconds),
			rate(p.Delivered, old.Delivered, x.Seconds), rate(p.Network.Received, old.Network.Received, x.Seconds), p.Network.Ratio(p.Raw, p.Delivered)})
	}
	seen := make(map[identity]int64, len(tensors))
	for _, info := range tensors {
		t := Tensor{TensorInfo: info}
		k := t.identity()
		seen[k] += info.RawBytes
		t.Rate = rate(info.RawBytes, s.tensors[k], x.Seconds)
		if info.WireBytes > 0 {
			t.Ratio = float64(info.RawBytes) / float64(info.WireBytes)
		}
		x.Tensors = append(x.Tensors, t)
	}
	slices.SortStableFunc(x.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.RawBytes, a.RawBytes))
	})
	if s.Limit > 0 && len(x.Tensors) > s.Limit {
		x.Tensors = x.Tensors[:s.Limit]
	}
	s.last, s.at, s.tensors = status, now, seen
	return x
}

// rate returns the rise of a counter per second. A counter that fell began anew, with a new process.
func rate(now, before int64, seconds float64) float64 {
	if seconds <= 0 || now < before {
		return 0
	}
	return float64(now-before) / seconds
}
