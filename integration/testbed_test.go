//go:build linux

package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

var (
	outage = flag.Duration("outage", 20*time.Second, "how long the WAN is a black hole")
	idle   = flag.Duration("idle", 20*time.Second, "how long a job sends nothing")
)

// lan is the link where the link is not the point: fast enough that a small job takes seconds, slow enough that the two
// processors of a small machine keep up.
var lan = wansim.Link{Rate: 200e6 / 8, Delay: 10 * time.Millisecond, Queue: 1 << 20}

// patience is how long a job may take in all, on a busy machine as well; its own time-outs are much shorter.
const patience = 10 * time.Minute

// scratch is a folder that ends with the test run.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "gradproxy-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	code := m.Run()
	os.RemoveAll(dir)
	if n := require.LeftOut(); n > 0 {
		fmt.Printf("%d tests of whole jobs were left out: %s=1 runs them\n", n, require.LongVariable)
	}
	os.Exit(code)
}

// gradproxy is the program under test, built once.
var gradproxy = sync.OnceValues(func() (*testbed.Gradproxy, error) {
	return testbed.Build(context.Background(), scratch)
})

// newWAN lays a WAN of n sites for the time of the test.
func newWAN(t *testing.T, n int, link wansim.Link) *testbed.WAN {
	t.Helper()
	return layWAN(t, testbed.NewWAN, n, link)
}

// newGateways lays one with a gateway before each site.
func newGateways(t *testing.T, n int, link wansim.Link) *testbed.WAN {
	t.Helper()
	return layWAN(t, testbed.NewWANOfGateways, n, link)
}

func layWAN(t *testing.T, lay func(context.Context, int, wansim.Link) (*testbed.WAN, error), n int, link wansim.Link) *testbed.WAN {
	t.Helper()
	require.Long(t)
	require.Root(t)
	require.Command(t, "nsenter")
	w, err := lay(context.Background(), n, link)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// startProxies starts the proxies of c, ready to work, for the time of the test. One that ends by itself fails the
// test.
func startProxies(t *testing.T, w *testbed.WAN, c testbed.Config) testbed.Proxies {
	t.Helper()
	ps, err := program(t).Start(deadline(t, time.Minute), w, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ps.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, p := range ps {
				t.Logf("proxy's log:\n%s", p.Log())
			}
		}
	})
	return ps
}

func program(t *testing.T) *testbed.Gradproxy {
	t.Helper()
	require.Command(t, "nft")
	require.Command(t, "go")
	g, err := gradproxy()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// torchJob and jaxJob return jobs that run in one of the environments of env/install.sh, or skip the test. A job of
// torch has two buckets of gradients.
func torchJob(t *testing.T, environment string, ranks int, args ...string) testbed.Job {
	return newJob(t, environment, "torch_job.py", ranks, args)
}

func jaxJob(t *testing.T, ranks int, args ...string) testbed.Job {
	return newJob(t, "jax", "jax_job.py", ranks, args)
}

func newJob(t *testing.T, environment, program string, ranks int, args []string) testbed.Job {
	t.Helper()
	require.Long(t)
	require.Root(t)
	python, complete := testbed.Python(environment)
	require.Named(t, environment, complete, "run integration/env/install.sh "+environment)
	_, err := os.Stat(images)
	require.Named(t, "fashion-mnist", err == nil, "run integration/env/install.sh fashion-mnist")
	if err := unpackImages(); err != nil {
		t.Fatal(err)
	}
	program, err = filepath.Abs(filepath.Join("testdata", program))
	if err != nil {
		t.Fatal(err)
	}
	small := []string{"--steps", "8", "--batch", "32", "--test", "200", "--timeout", "60"} // later ones win
	return testbed.Job{Python: python, Program: program, Ranks: ranks, Args: append(small, args...)}
}

// runJob runs job to a good end.
func runJob(t *testing.T, w *testbed.WAN, job testbed.Job) []testbed.Result {
	t.Helper()
	results, err := w.Run(deadline(t, patience), job)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// runProbedJob runs a job of PyTorch to a good end. It begins to train once its ranks are probed by the proxies.
func runProbedJob(t *testing.T, ctx context.Context, w *testbed.WAN, ps testbed.Proxies, job testbed.Job) []testbed.Result {
	t.Helper()
	begin := filepath.Join(t.TempDir(), "begin")
	job.Env = append(slices.Clip(job.Env), "RANKS_BEGIN="+begin)
	ctx, cancel := context.WithCancel(ctx)
	var seen sync.WaitGroup
	defer seen.Wait()
	defer cancel()
	seen.Go(func() {
		for ctx.Err() == nil {
			if n, err := ps.Count(ctx, "gradproxy_probe_processes"); err == nil && int(n) >= job.Ranks {
				if err := os.WriteFile(begin, nil, 0o600); err != nil {
					t.Error(err)
				}
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	results, err := w.Run(ctx, job)
	if err != nil {
		n, metrics := ps.Count(deadline(t, time.Minute), "gradproxy_probe_processes")
		t.Fatalf("%v; %.0f of %d ranks are probed (%v)", err, n, job.Ranks, metrics)
	}
	return results
}

// startJob starts job, which ends with the test at the latest.
func startJob(t *testing.T, w *testbed.WAN, job testbed.Job) *testbed.Run {
	t.Helper()
	run, err := w.Start(deadline(t, patience), job)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Kill)
	return run
}

// deadline returns a context for one step of a test, which ends after d or with the test.
func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// A leg is how a job went over one WAN.
type leg struct {
	results []testbed.Result
	bytes   uint64 // on all links, both directions
}

// A directLeg is a direct run that tests share.
type directLeg struct {
	sync.Mutex // held while the job runs: who comes meanwhile waits for its results
	leg
}

// directLegs are the direct runs that tests have shared, by job and link.
var directLegs struct {
	sync.Mutex
	by map[string]*directLeg
}

// sharedDirect returns the results of a direct run that tests share by key. The first test that asks runs it.
func sharedDirect(t *testing.T, key string, run func(t *testing.T) leg) leg {
	t.Helper()
	directLegs.Lock()
	if directLegs.by == nil {
		directLegs.by = map[string]*directLeg{}
	}
	d := directLegs.by[key]
	if d == nil {
		d = &directLeg{}
		directLegs.by[key] = d
	}
	directLegs.Unlock()
	d.Lock()
	defer d.Unlock()
	if d.results == nil {
		t.Run("direct", func(t *testing.T) { d.leg = run(t) })
	}
	if d.results == nil {
		t.Fatal("no direct run to compare with")
	}
	return d.leg
}

// direct returns how job goes over a WAN of as many sites as ranks without proxies.
func direct(t *testing.T, job testbed.Job) leg {
	t.Helper()
	return sharedDirect(t, fmt.Sprint(job), func(t *testing.T) leg {
		w := newWAN(t, job.Ranks, lan)
		l := leg{results: runJob(t, w, job), bytes: w.LinkBytes()}
		report(t, l)
		return l
	})
}

// report logs a leg in one line.
func report(t *testing.T, l leg) {
	r := l.results[0]
	t.Logf("%s %s, %d ranks: %d parameters, loss %.4f, accuracy %.3f, weights %.8s, %.1f s (%.1f s in all), %d bytes",
		r.Job, r.Version, r.World, r.Parameters, r.Loss, r.Accuracy, r.WeightsSHA256, r.Seconds, r.Wall.Seconds(), l.bytes)
}

// sameResults fails the test unless every rank of got ended with the weights, the metrics and the loss of its twin in
// want.
func sameResults(t *testing.T, want, got []testbed.Result) {
	t.Helper()
	type outcome struct {
		weights, metric string
		loss            float64
	}
	outcomes := func(results []testbed.Result) (o []outcome) {
		for _, r := range results {
			o = append(o, outcome{r.WeightsSHA256, r.MetricSHA256, r.Loss})
		}
		return o
	}
	if w, g := outcomes(want), outcomes(got); !slices.Equal(w, g) {
		t.Errorf("through the proxies the ranks end with\n%v\nwant what the direct run ends with\n%v", g, w)
	}
}

// compare runs job directly and through lossless proxies, and demands the same results and fewer bytes on the WAN. It
// returns the proxies, which still run.
func compare(t *testing.T, job testbed.Job) testbed.Proxies {
	t.Helper()
	return compareOn(t, newWAN, job)
}

// compareOn is compare over a WAN that lay makes.
func compareOn(t *testing.T, lay func(*testing.T, int, wansim.Link) *testbed.WAN, job testbed.Job) testbed.Proxies {
	t.Helper()
	want := direct(t, job)
	w := lay(t, job.Ranks, lan)
	ps := startProxies(t, w, testbed.Config{})
	before := w.LinkBytes()
	got := leg{results: runJob(t, w, job), bytes: w.LinkBytes() - before}
	report(t, got)
	sameResults(t, want.results, got.results)
	if got.bytes >= want.bytes {
		t.Errorf("%d bytes on the WAN, want fewer than the %d of a direct run", got.bytes, want.bytes)
	}
	return ps
}
