package site

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// countEvery is how often bytes are counted against budgets.
const countEvery = 5 * time.Second

// allowances are the budgets of peers and jobs. The used part of each outlives a reload, and the process where there is
// a folder for state.
type allowances struct {
	log   *slog.Logger
	clock func() time.Time
	// bytes returns how many bytes links have carried to a peer, or for a job; one of the two is "". It falls only
	// where a counter begins anew.
	bytes func(peer, job string) float64

	mu  sync.Mutex
	all map[owner]*allowance
}

// An owner is a peer or a job that has a budget.
type owner struct{ peer, job string }

// plan returns the stages that follow the budgets of c, and a function that has these budgets hold from then on. Until
// it is called nothing changes.
func (a *allowances) plan(c *config.Config) (list []policy.Staging, hold func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := map[owner]*allowance{}
	budgets := map[owner]config.Budget{}
	add := func(o owner, b config.Budget) {
		if b.GBPerDay == 0 {
			return
		}
		x := a.all[o]
		if x == nil {
			x = &allowance{whole: a.all == nil}
		}
		next[o], budgets[o] = x, b
		if len(b.Then) > 0 {
			list = append(list, policy.Staging{Peer: o.peer, Job: o.job, Codecs: b.Then, At: func() int { return a.at(x) }})
		}
	}
	for _, p := range c.Peers {
		add(owner{peer: p.Name}, p.Budget)
	}
	for _, j := range c.Jobs {
		add(owner{job: j.Name}, j.Budget)
	}
	return list, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for o, x := range next {
			x.limit, x.stages, x.then = budgets[o].GBPerDay*gigabyte, len(budgets[o].Then), budgets[o].Then
			x.stage = min(x.stage, x.stages)
		}
		a.all = next
	}
}

func (a *allowances) at(x *allowance) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return x.stage
}

// run counts until ctx ends.
func (a *allowances) run(ctx context.Context) {
	t := time.NewTicker(countEvery)
	defer t.Stop()
	for {
		a.count()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// count counts once, and logs news.
func (a *allowances) count() {
	now := a.clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for o, x := range a.all {
		before := x.stage
		x.count(now, a.bytes(o.peer, o.job))
		if news := x.news(now); news != "" {
			a.log.Warn(news, "peer", o.peer, "job", o.job)
		}
		if x.stage > before {
			a.log.Warn("tensors move to the next codec of budget.then until the day ends (UTC)", "peer", o.peer, "job", o.job, "stage", x.stage)
		}
	}
}

var (
	budgetDesc          = budgetDescOf("bytes", "Bytes that links may carry in a day, by the configuration.")
	budgetUsedDesc      = budgetDescOf("used_bytes", "Bytes of the day (UTC) that links have carried to the peer, or for the job. Without state.dir they begin with the process.")
	budgetProjectedDesc = budgetDescOf("projected_bytes", "Bytes of the whole day at the rate of the last hour.")
	budgetStageDesc     = budgetDescOf("stage", "How many codecs of budget.then have had their turn this day.")
)

func budgetDescOf(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gradproxy_budget_"+name, help, []string{"peer", "training_job"}, nil)
}

// Describe lists the metrics.
func (a *allowances) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{budgetDesc, budgetUsedDesc, budgetProjectedDesc, budgetStageDesc} {
		ch <- d
	}
}

// Collect sends the metrics of all budgets.
func (a *allowances) Collect(ch chan<- prometheus.Metric) {
	now := a.clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for o, x := range a.all {
		for _, m := range []struct {
			desc  *prometheus.Desc
			value float64
		}{{budgetDesc, x.limit}, {budgetUsedDesc, x.used}, {budgetProjectedDesc, x.projected(now)}, {budgetStageDesc, float64(x.stage)}} {
			ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, m.value, o.peer, o.job)
		}
	}
}

// list describes all budgets, peers' first.
func (a *allowances) list() []admin.Budget {
	now := a.clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []admin.Budget{}
	for o, x := range a.all {
		list = append(list, admin.Budget{Peer: o.peer, Job: o.job, Limit: x.limit, Used: x.used, Projected: x.projected(now), Left: now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now).Seconds(),
			State: [...]string{withinBudget: "within", overProjected: "will not last", overBudget: "spent"}[x.level(now)], Then: x.then, Stage: x.stage, Plan: x.plan()})
	}
	slices.SortFunc(list, func(x, y admin.Budget) int { return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.Peer, y.Peer)) })
	return list
}

// linkBytes returns how many bytes links have carried to a peer, or for a job to all peers.
func (s *Site) linkBytes(peer, job string) float64 {
	if peer == "" {
		return float64(s.observed.sentFor(job))
	}
	for _, p := range s.tunnel.Stats() {
		if p.Peer == peer {
			return float64(onLinks(&p).Sent)
		}
	}
	return 0
}

// onLinks returns the bytes that links have carried to and from a peer, or the tunnel's bytes where the kernel does not
// tell the links'.
func onLinks(p *tunnel.PeerStats) tunnel.Traffic {
	if p.Network == (tunnel.Traffic{}) {
		return tunnel.Traffic{Sent: p.Sent, Received: p.Received}
	}
	return p.Network
}
