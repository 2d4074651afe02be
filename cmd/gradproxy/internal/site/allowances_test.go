package site

import (
	"log/slog"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy"
)

// A job's budget counts the job's part of each link once, whatever the parts of other jobs are, and goes on when a peer
// is gone.
func TestJobsBudgetCountsItsPartOnce(t *testing.T) {
	s := &Site{observed: newObserver(nil, nil)}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := &allowances{log: slog.New(slog.DiscardHandler), clock: func() time.Time { return now }, bytes: s.linkBytes}
	_, hold := a.plan(&config.Config{Jobs: []config.Job{{Name: "resnet", Budget: config.Budget{GBPerDay: 1}}}})
	hold()
	a.count()
	used := func() float64 { return a.all[owner{job: "resnet"}].used }
	wire := map[[2]string]int64{}
	carry := func(peer string, resnet, other, link int64) {
		var list []proxy.Traffic
		for job, n := range map[string]int64{"resnet": resnet, "other": other} {
			k := [2]string{peer, job}
			wire[k] += n
			list = append(list, proxy.Traffic{Peer: peer, Job: job, Wire: wire[k]})
		}
		s.observed.share(peer, list, link, 0)
		now = now.Add(countEvery)
		a.count()
	}
	carry("tokyo", 1_000_000, 1_000_000, 2_400_000)
	carry("virginia", 500_000, 0, 500_000)
	if got := used(); got != 1_700_000 {
		t.Fatalf("%v bytes are used, want 1.7 MB", got)
	}
	carry("tokyo", 0, 10_000_000, 10_000_000) // the link now has fewer bytes for each byte of the tunnel
	if got := used(); got != 1_700_000 {
		t.Errorf("%v bytes are used after another job has sent, want 1.7 MB", got)
	}
	carry("tokyo", 100_000, 0, 110_000) // from here on virginia is no peer any more
	if got := used(); got != 1_810_000 {
		t.Errorf("%v bytes are used, want 1.81 MB", got)
	}
}

// A budget of the start counts every byte of the process, also the bytes that tunnels have sent before the first
// reading. A budget that a reload adds begins with the bytes from then on.
func TestBudgetsOfTheStartCountAllBytes(t *testing.T) {
	a := &allowances{log: slog.New(slog.DiscardHandler), clock: time.Now, bytes: func(string, string) float64 { return 7000 }}
	for _, x := range []struct {
		peers []string
		used  float64
	}{{[]string{"tokyo"}, 7000}, {[]string{"tokyo", "virginia"}, 0}} {
		var c config.Config
		for _, name := range x.peers {
			c.Peers = append(c.Peers, config.Peer{Name: name, Budget: config.Budget{GBPerDay: 1}})
		}
		_, hold := a.plan(&c)
		hold()
		a.count()
		last := x.peers[len(x.peers)-1]
		if got := a.all[owner{peer: last}].used; got != x.used {
			t.Errorf("%v bytes of the budget of %s are used, want %v", got, last, x.used)
		}
	}
}

// A plan changes nothing until it holds. The used bytes and the stage outlive a new configuration that still has the
// budget.
func TestPlannedBudgetsHoldLater(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	total := 0.0
	a := &allowances{log: slog.New(slog.DiscardHandler), clock: func() time.Time { return now }, bytes: func(string, string) float64 { return total }}
	with := func(b config.Budget) *config.Config {
		return &config.Config{Peers: []config.Peer{{Name: "tokyo", Budget: b}}}
	}
	stages, hold := a.plan(with(config.Budget{GBPerDay: 1, Then: []string{"int8", "int4"}}))
	hold()
	a.count()
	total = 0.8e9
	now = now.Add(firstRate)
	a.count()
	if got := stages[0].At(); got != 2 {
		t.Fatalf("stage %d, want 2", got)
	}
	a.plan(with(config.Budget{})) // of a configuration that is refused for another mistake
	a.plan(with(config.Budget{GBPerDay: 100, Then: []string{"int8"}}))
	total = 1.1e9
	a.count()
	if x := a.all[owner{peer: "tokyo"}]; x == nil || x.used != 1.1e9 || x.limit != 1e9 || x.stages != 2 || stages[0].At() != 2 {
		t.Errorf("after plans that did not hold: %+v, stage %d", x, stages[0].At())
	}
	later, hold := a.plan(with(config.Budget{GBPerDay: 100, Then: []string{"int8"}}))
	hold()
	if x := a.all[owner{peer: "tokyo"}]; x.used != 1.1e9 || x.limit != 100e9 || later[0].At() != 1 {
		t.Errorf("after one that holds: %+v, stage %d", x, later[0].At())
	}
	_, hold = a.plan(with(config.Budget{}))
	hold()
	if len(a.all) != 0 {
		t.Errorf("%d budgets are left", len(a.all))
	}
}
