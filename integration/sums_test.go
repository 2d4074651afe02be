//go:build linux

package integration

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

var collectives = flag.Int("collectives", 0, "all-reduces of each job of TestProvedSums, at least, over all cases; 0: its usual cases once")

var environment = flag.String("environment", "", "an environment with another PyTorch in $GRADPROXY_ENV, in which TestProvedSums runs some cases, instead of its usual ones")

// schedules are three ways to sum weights, momentum, maxima and more between DDP's gradients.
const schedules = "rare,each,random"

// usual are enough of mixed for every day.
const usual = schedules + ",ema-5,ema-unused,adam-momentum,max,fisher,parameters,buckets,then-averages,static,adamw-5,local-20,lora,byhand,diloco,hook"

// mixed are the schedules, and the jobs in which a sum that is no gradient has lost something where the user had said
// that all are gradients.
const mixed = schedules + ",ema-5,ema-10,ema-unused,ema-mean,momentum,adam-momentum,max,fisher,parameters,buckets,then-averages,static," +
	"adamw-5,adamw-50,local-20,sgd-20,lora,byhand,diloco,hook"

// others are the rest of the jobs that lost something, with other models, optimizers and distances, and jobs like them
// that did not.
const others = "ema-10,ema-50,ema-unused-10,ema-mean,lm-ema-5,lm-weights-10,weights-1,buckets-sum,average-10,momentum,lm-momentum,integers," +
	"lm-local-5,lm-local-50,lm-flat-20,sgd-20,adam-20,then-averages-fast,activations,preactivations"

// sumsJob returns a job that sums other things than gradients too, and checks them.
func sumsJob(t *testing.T, environment string, ranks int, cases string, args ...string) testbed.Job {
	t.Helper()
	job := newJob(t, environment, "torch_sums.py", ranks, nil)
	job.Args = append([]string{"--folder", t.TempDir(), "--cases", cases, "--timeout", "60"}, args...)
	return job
}

// wantSumsExact fails the test if a sum that is no gradient was not the sum of the ranks' inputs.
func wantSumsExact(t *testing.T, results []testbed.Result) {
	t.Helper()
	for _, r := range results {
		if r.Sums == 0 || len(r.Inexact) > 0 {
			t.Errorf("rank %d: of %d sums that are no gradients these are inexact: %v; the worst is off by %.2g of its norm", r.Rank, r.Sums, r.Inexact, r.Worst)
		}
	}
	r := results[0]
	t.Logf("torch %s, %d ranks: %d all-reduces in %.0f s, %d of them no gradients of DDP, %d inexact", r.Version, r.World, r.Collectives, r.Seconds, r.Sums, len(r.Inexact))
}

// wantProved fails the test unless as many bytes of gradients and of their sums went through the codecs as the job
// says, and nothing contradicted the calls.
func wantProved(t *testing.T, ctx context.Context, ps testbed.Proxies, config testbed.Config, results []testbed.Result) {
	t.Helper()
	samples, err := ps.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if wantProvedBy(t, samples, config, results); t.Failed() {
		t.Log(ps.Warnings())
	}
}

// wantProvedBy is wantProved by the samples of each proxy.
func wantProvedBy(t *testing.T, samples []map[string]float64, config testbed.Config, results []testbed.Result) {
	t.Helper()
	minimum, maximum := results[0].LossyBytes, results[0].LossyBytes+results[0].SpareBytes
	for role, codec := range map[string]string{"gradient": config.Loss.Gradients, "aggregate": config.Loss.Aggregates} {
		if codec == "" {
			continue
		}
		got := 0.0
		for _, s := range samples {
			got += testbed.Sum(s, "gradproxy_raw_bytes_total", fmt.Sprintf("role=%q", role), fmt.Sprintf("codec=%q", codec))
		}
		t.Logf("%.0f bytes of role %s went through %s, of %.0f to %.0f", got, role, codec, minimum, maximum)
		if got < minimum || got > maximum || minimum == 0 {
			t.Errorf("%.0f bytes of role %s went through %s, want %.0f to %.0f", got, role, codec, minimum, maximum)
		}
	}
	for i, s := range samples {
		if n, ok := s["gradproxy_probe_contradictions_total"]; !ok || n != 0 {
			t.Errorf("site %d: %.0f processes contradicted (counted: %v)", i, n, ok)
		}
	}
}

// The processes' own calls tell gradients from all else that a job sums: what is none travels exactly, and all
// gradients of DDP lose something, in both phases, from their third step on.
func TestProvedSums(t *testing.T) {
	require.Named(t, "bpf", bpf.Permitted() == nil, "run the tests with all capabilities")
	const way = testbed.Way("3lc+int4")
	type jobs struct {
		environment string
		ranks       int
		cases       string
		args        []string
	}
	all := []jobs{{"torch113", 2, usual, nil}, {"torch215", 3, "each,buckets,static,ema-10", []string{"--steps", "15"}}, {"torch215", 2, others, nil}}
	if *environment != "" {
		all = []jobs{{*environment, 2, "each,buckets,max", []string{"--steps", "15"}}}
	}
	for _, c := range all {
		t.Run(fmt.Sprintf("%s/ranks=%d", c.environment, c.ranks), func(t *testing.T) {
			if *collectives > 0 && c.cases != others {
				c.cases, c.args = mixed, []string{"--collectives", fmt.Sprint(*collectives)}
			}
			config := way.Config()
			if c.cases == others { // int4 leaves blocks exact that are nearly all zeros, as of a language model
				config = testbed.Way("3lc").Config()
			}
			config.Loss.Sums = "proved"
			job := sumsJob(t, c.environment, c.ranks, c.cases, c.args...)
			w := newWAN(t, c.ranks, fast)
			ps := startProxies(t, w, config)
			limit := 30 * time.Minute
			if *collectives > 0 {
				limit = 2 * time.Hour // of a busy machine; -timeout has the last word
			}
			ctx := deadline(t, limit)
			results := runProbedJob(t, ctx, w, ps, job)
			wantSumsExact(t, results)
			wantProved(t, ctx, ps, config, results)
		})
	}
}

// Where nobody sees the processes, as beside a gateway, nothing in rings is proved, and nothing loses anything.
func TestUnseenSumsTravelExactly(t *testing.T) {
	t.Parallel()
	const way = testbed.Way("3lc+int4")
	config := way.Config()
	config.Loss.Sums = "proved"
	job := sumsJob(t, "torch113", 2, usual+",ema-10,momentum,sgd-20,activations", "--steps", "15")
	w := newGateways(t, 2, fast)
	ps := startProxies(t, w, config)
	wantSumsExact(t, runJob(t, w, job))
	for _, role := range []string{"gradient", "aggregate"} {
		if n, err := ps.Sum(deadline(t, time.Minute), "gradproxy_raw_bytes_total", fmt.Sprintf("role=%q", role)); err != nil || n != 0 {
			t.Errorf("%.0f bytes are of role %s: %v", n, role, err)
		}
	}
}
