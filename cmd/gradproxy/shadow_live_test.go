package main

import (
	"context"
	"io"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/pair"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

// A shadowed job is a demo's run, with the bytes that both proxies handed to their tunnel and their reports.
type shadowed struct {
	sent    int64
	reports []trials.Report
	same    bool // the weights are the direct run's
}

// runShadowed trains by a code, with candidates or none.
func runShadowed(t *testing.T, wire, code string, steps int, candidates []string) (s shadowed) {
	t.Helper()
	return runAsked(t, wire, code, steps, candidates, func(*pair.Site) {})
}

// runAsked is runShadowed, and calls ask with both sites once the job has ended and all that was sampled has been
// tried. The job waits after each step until the step's values have been tried, so that no value of the sample is
// dropped, however slow the machine is.
func runAsked(t *testing.T, wire, code string, steps int, candidates []string, ask func(*pair.Site)) (s shadowed) {
	t.Helper()
	var p *pair.Pair // nil in the direct run, which comes first
	o := demo.Options{Wires: []string{wire}, Codes: []string{code}, Steps: steps, Model: []int{128, 128}, Seed: 3}
	o.After = func() {
		if p != nil {
			waitUntilTried(t, p)
		}
	}
	o.Through = func(ctx context.Context, r demo.Run, between demo.Between) (demo.Path, error) {
		cfg := pairOf(r, between)
		if cfg.Shadow = candidates; candidates != nil && cfg.Jobs == nil {
			cfg.Jobs = []proxy.Job{{Name: "demo", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Sums: parser.SumsGradients}}
		}
		var err error
		p, err = pair.Start(ctx, cfg)
		return closing{p, func() {
			waitUntilTried(t, p)
			for _, site := range []*pair.Site{p.Near, p.Far} {
				ask(site)
				if r, ok := site.Shadow(); ok {
					if r.Dropped > 0 {
						t.Errorf("dropped %d of %d values of the sample", r.Dropped, r.Dropped+r.Values)
					}
					s.reports = append(s.reports, r)
				}
				for _, peer := range site.Tunnel.Stats() {
					s.sent += int64(peer.Sent)
				}
			}
		}}, err
	}
	report, err := demo.Do(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s.same = report.Runs[1].SameAsDirect
	return s
}

// waitUntilTried waits until both sites have tried all that was sampled so far.
func waitUntilTried(t *testing.T, p *pair.Pair) {
	t.Helper()
	for _, site := range []*pair.Site{p.Near, p.Far} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if r, _ := site.Shadow(); r.Queued == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Error("values of the sample wait for ever")
				break
			}
		}
	}
}

// closing calls a function before a Path is closed.
type closing struct {
	demo.Path
	before func()
}

func (c closing) Close() error { c.before(); return c.Path.Close() }

// A parameter server's job in shadow mode predicts the bytes of the same job with each candidate within 5 %, once the
// job has begun. It travels losslessly, and ends with the direct run's weights.
func TestShadowPredictsAJob(t *testing.T) {
	require.Long(t) // and without the race detector: trials that do not keep up with the job lack values, and their differences are larger
	const few, many = 60, 260
	candidates := []string{"int8", "int4", "3lc"}
	predicted := map[string]float64{}
	for _, steps := range []int{few, many} {
		s := runShadowed(t, "pslite", "lossless", steps, candidates)
		if !s.same || len(s.reports) != 2 {
			t.Fatalf("%d steps: the direct run's weights: %v; %d reports", steps, s.same, len(s.reports))
		}
		for _, r := range s.reports {
			for _, g := range r.Groups {
				for k, codec := range candidates {
					bytes := float64(g.Wire)
					if i := slices.IndexFunc(g.Candidates, func(c trials.Candidate) bool { return c.Codec == codec }); i >= 0 {
						bytes = float64(g.Candidates[i].Predicted)
						if c := g.Candidates[i]; c.Error <= 0 || c.Error > 1 || c.Coding <= 0 {
							t.Errorf("%s %s: %+v", g.Role, codec, c)
						}
					}
					if steps == many {
						predicted[candidates[k]] += bytes
					} else {
						predicted[candidates[k]] -= bytes
					}
				}
			}
		}
	}
	for _, codec := range candidates {
		begun := runShadowed(t, "pslite", codec, few, nil)
		whole := runShadowed(t, "pslite", codec, many, nil)
		real := float64(whole.sent - begun.sent)
		d := predicted[codec]/real - 1
		t.Logf("%s: %.0f bytes predicted for %d steps, %.0f sent: %+.2f %%", codec, predicted[codec], many-few, real, 100*d)
		if math.Abs(d) > 0.05 {
			t.Errorf("%s: the prediction is %+.1f %% off", codec, 100*d)
		}
	}
}
