package site

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// countEvery is how often bytes are counted against budgets.
const countEvery = 5 * time.Second

// allowances are the budgets of peers and jobs. The used part of each outlives a reload, and ends with the process.
type allowances struct {
	log   *slog.Logger
	clock func() time.Time
	// bytes returns how many bytes links have carried to a peer, or for a job; one of the two is "".
	bytes func(peer, job string) float64

	mu  sync.Mutex
	all map[owner]*allowance
}

// An owner is a peer or a job that has a budget.
type owner struct{ peer, job string }

// set has the budgets of c hold from now on, and returns the stages that follow them.
func (a *allowances) set(c *config.Config) (list []policy.Staging) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.all
	a.all = map[owner]*allowance{}
	add := func(o owner, b config.Budget) {
		if b.GBPerDay == 0 {
			return
		}
		x := old[o]
		if x == nil {
			x = &allowance{}
		}
		x.limit, x.stages = b.GBPerDay*gigabyte, len(b.Then)
		x.stage = min(x.stage, x.stages)
		a.all[o] = x
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
	return list
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
	budgetUsedDesc      = budgetDescOf("used_bytes", "Bytes of the day (UTC) that links have carried to the peer, or for the job, since this process began.")
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

// linkBytes returns how many bytes links have carried to a peer, or for a job: as the tunnel's bytes of the job where the peer's links carry more than its tunnel.
func (s *Site) linkBytes(peer, job string) float64 {
	sum := 0.0
	for _, p := range s.tunnel.Stats() {
		link := float64(p.Network.Sent)
		if link == 0 {
			link = float64(p.Sent) // the kernel does not tell the link's
		}
		switch {
		case peer == p.Peer:
			return link
		case peer == "":
			if all := s.metrics.WireBytes(p.Peer, ""); all > 0 {
				sum += link * s.metrics.WireBytes(p.Peer, job) / all
			}
		}
	}
	return sum
}
