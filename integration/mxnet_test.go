//go:build linux

package integration

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// An mxnetMode is a kind of job on MXNet's parameter servers.
type mxnetMode struct {
	nodes []testbed.Node
	args  []string
	env   []string
}

// With --grid the order in which a server adds gradients up does not matter, so that four workers end with the same
// bits in every run, as two do anyway.
var (
	mxnetSync      = mxnetMode{twoWorkers, nil, nil}
	mxnetManyKinds = mxnetMode{fourWorkers, []string{"--grid", "16", "--half", "--sparse"}, nil}
	mxnetSums      = mxnetMode{fourWorkers, []string{"--grid", "16", "--update", "workers"}, nil}
	mxnetP3        = mxnetMode{fourWorkers, mxnetSums.args, []string{p3, "MXNET_KVSTORE_SLICE_THRESHOLD=5000"}}
	mxnetCodes     = mxnetMode{fourWorkers, []string{"--compress", "0.5"}, nil} // multiples of 0.5: as good as --grid
	mxnetAsync     = mxnetMode{fourWorkers, []string{"--kvstore", "dist_async"}, nil}
)

// Where the nodes of MXNet's jobs are.
var (
	twoWorkers = []testbed.Node{
		{Role: testbed.Scheduler, Site: 0}, {Role: testbed.Server, Site: 0}, {Role: testbed.Server, Site: 1},
		{Role: testbed.Worker, Site: 0}, {Role: testbed.Worker, Site: 1},
	}
	// Half of the workers are beside a value's server, where no proxy sees them, and half of them behind the WAN.
	fourWorkers = append(twoWorkers[:len(twoWorkers):len(twoWorkers)],
		testbed.Node{Role: testbed.Worker, Site: 0}, testbed.Node{Role: testbed.Worker, Site: 1})
)

// p3 sends in slices, by priority. Its queue (ps-lite, p3_van.h) gives a process's own order to end, which is as urgent
// as the last barrier's answers before it, no place behind them: now and then the scheduler ends with some unsent, and
// a process that waits for one hangs, in a run without any proxy as well (one of 31).
const p3 = "DMLC_PS_VAN_TYPE=p3"

// mxnetSteps is how many steps the jobs make.
const mxnetSteps = 10

// job returns the mode's job, or skips the test.
func (m mxnetMode) job(t *testing.T, args ...string) testbed.Job {
	t.Helper()
	job := newJob(t, "mxnet", "mxnet_job.py", 0, nil)
	job.Nodes = m.nodes
	job.Args = append([]string{"--steps", fmt.Sprint(mxnetSteps)}, append(m.args, args...)...)
	job.Env = append([]string{"MXNET_KVSTORE_BIGARRAY_BOUND=1000"}, m.env...) // splits large arrays over both servers
	job.Lingers = slices.Contains(m.env, p3)
	return job
}

// runMXNet runs job between two sites with link between them, through the proxies of c if there are any. It returns the
// results of its workers. MXNet says nothing when a connection is lost that had something to carry, and waits for ever:
// the deadline ends it.
func runMXNet(t *testing.T, link wansim.Link, job testbed.Job, c *testbed.Config) (l leg, ps testbed.Proxies) {
	t.Helper()
	return runMXNetOn(t, newWAN(t, 2, link), job, c)
}

// runMXNetOn is runMXNet over a WAN that exists.
func runMXNetOn(t *testing.T, w *testbed.WAN, job testbed.Job, c *testbed.Config) (l leg, ps testbed.Proxies) {
	t.Helper()
	if c != nil {
		ps = startProxies(t, w, *c)
	}
	before := w.LinkBytes()
	results, err := w.Run(deadline(t, patience), job)
	if err != nil {
		t.Fatal(err)
	}
	l.bytes = w.LinkBytes() - before
	for _, r := range results {
		if r.Role == testbed.Worker {
			l.results = append(l.results, r)
		}
	}
	report(t, l)
	if n := sum(t, ps, "gradproxy_parsers_gave_up_total"); n != 0 {
		t.Errorf("%.0f directions of connections stopped being understood", n)
	}
	return l, ps
}

// directMXNet returns the results of the mode's job without proxies, and the folder with its workers' notes. How values
// travel has no effect on the weights, so modes that differ in nothing else share one direct run.
func directMXNet(t *testing.T, m mxnetMode) (l leg, folder string) {
	t.Helper()
	key := fmt.Sprint("mxnet", m.args)
	folder = filepath.Join(scratch, fmt.Sprintf("%x", sha256.Sum256([]byte(key))))
	job := m.job(t, "--alike", folder) // which skips t itself where it cannot run
	l = sharedDirect(t, key, func(t *testing.T) leg {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		l, _ := runMXNet(t, fast, job, nil)
		return l
	})
	return l, folder
}

// The scheduler, a server and half of the workers are at one site, the rest is at another one; all their ports are
// ephemeral. Without loss the workers end with the direct run's weights.
func TestMXNet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		mode mxnetMode
	}{
		{"dist_sync, two workers", mxnetSync},
		{"float16, row-sparse", mxnetManyKinds},
		{"updates on workers", mxnetSums},
		{"P3", mxnetP3},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, _ := directMXNet(t, c.mode)
			t.Run("lossless", func(t *testing.T) {
				got, _ := runMXNet(t, fast, c.mode.job(t), &testbed.Config{})
				sameResults(t, want.results, got.results)
				if got.bytes >= want.bytes {
					t.Errorf("%d bytes on the WAN, want fewer than the %d of a direct run", got.bytes, want.bytes)
				}
			})
		})
	}
}

// mxnetLoss lets gradients lose something.
var mxnetLoss = testbed.Loss{Protocol: "pslite", Gradients: gradientCodec}

// Where gradients lose something, whatever else the workers push or get back still travels exactly, and so they stay
// alike, whether they are beside the server or behind the WAN.
func TestMXNetWithLoss(t *testing.T) {
	t.Parallel()
	const arrays, rows = 6, 100 // weights and biases of three layers; rows that all workers want in a step
	for _, c := range []struct {
		name   string
		mode   mxnetMode
		common int  // arrays and rows that all workers have, at least
		sync   bool // so that the job begins as without proxies
	}{
		{"float16, row-sparse", mxnetManyKinds, arrays*(1+mxnetSteps) + rows*mxnetSteps, true},
		{"updates on workers", mxnetSums, arrays * (1 + mxnetSteps), true},
		{"P3", mxnetP3, arrays * (1 + mxnetSteps), true},
		{"dist_async", mxnetAsync, arrays, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var first string
			if c.sync {
				_, first = directMXNet(t, c.mode)
			}
			folder := t.TempDir()
			l, ps := runMXNet(t, fast, c.mode.job(t, "--alike", folder), &testbed.Config{Loss: mxnetLoss})
			n := readNotes(t, folder, len(l.results))
			if c.sync {
				n.wantFirst(t, readNotes(t, first, len(l.results)))
			}
			if len(n.different) > 0 {
				t.Errorf("the workers have not the same: %v and %d more", n.different[0], len(n.different)-1)
			}
			if n.common < c.common {
				t.Errorf("%d arrays and rows are on all workers, want %d: the test shows little", n.common, c.common)
			}
			wantReplicasEqual(t, l.results)
			// Each dense gradient of half of the workers crosses the WAN. The first of each is exact, and so are zeros.
			wantLost(t, ps, gradientCodec, (mxnetSteps-1)*len(l.results)/2*l.results[0].DenseBytes*99/100)
			wantLearned(t, l.results)
		})
	}
}

// The papers' methods for sparse gradients code the pushes of MXNet's workers, rows of a sparse array with their
// numbers as well, and the residual waits for the next push of the same row.
func TestMXNetWithSparseMethods(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		codec, keys string
		noFeedback  bool
	}{
		{"skcompress", "adaptive-prefix", false},
		{"fastsgd", "bit-grain", false},
		{"gspar", "rice", true}, // right on average, and so without feedback
	} {
		t.Run(m.codec, func(t *testing.T) {
			folder := t.TempDir()
			l, ps := runMXNet(t, fast, mxnetManyKinds.job(t, "--alike", folder),
				&testbed.Config{Loss: testbed.Loss{Protocol: "pslite", Gradients: m.codec, NoFeedback: m.noFeedback}})
			if n := readNotes(t, folder, len(l.results)); len(n.different) > 0 {
				t.Errorf("the workers have not the same: %v and %d more", n.different[0], len(n.different)-1)
			}
			wantReplicasEqual(t, l.results)
			wantLearned(t, l.results)
			gradients := []string{`role="gradient"`, fmt.Sprintf("codec=%q", m.codec)}
			raw, wire := sum(t, ps, "gradproxy_raw_bytes_total", gradients...), sum(t, ps, "gradproxy_wire_bytes_total", gradients...)
			if minimum := float64((mxnetSteps - 1) * len(l.results) / 2 * l.results[0].DenseBytes / 2); raw < minimum || wire > raw/2 {
				t.Errorf("%.0f bytes of gradients became %.0f, want half of %.0f at least, and half as many", raw, wire, 2*minimum)
			}
			keys := fmt.Sprintf("codec=%q", m.keys)
			if raw, wire := sum(t, ps, "gradproxy_raw_bytes_total", keys), sum(t, ps, "gradproxy_wire_bytes_total", keys); raw == 0 || wire > raw/2 {
				t.Errorf("%.0f bytes of keys became %.0f, want some, and half as many", raw, wire)
			}
		})
	}
}

// Sums of gradients may lose something too, if the configuration says so. Workers behind the WAN then get other values
// than workers beside the server, and the figures that the tests above compare show it.
func TestMXNetWithLossyAggregates(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	way := testbed.Way(gradientCodec + "+int4")
	config := way.Config()
	l, ps := runMXNet(t, fast, mxnetSums.job(t, "--alike", folder), &config)
	if n := readNotes(t, folder, len(l.results)); len(n.different) == 0 {
		t.Error("all workers got the same")
	}
	// The content check lets some of both travel exactly.
	wantLost(t, ps, way, (mxnetSteps-2)*len(l.results)/2*l.results[0].DenseBytes/4)
	wantLearned(t, l.results)
}

// MXNet's 2-bit codes are sent where gradients would be. One that changed would change the weights.
func TestMXNetsCodesTravelExactly(t *testing.T) {
	t.Parallel()
	want, _ := directMXNet(t, mxnetCodes)
	got, ps := runMXNet(t, fast, mxnetCodes.job(t), &testbed.Config{Loss: mxnetLoss})
	sameResults(t, want.results, got.results)
	if n := sum(t, ps, "gradproxy_raw_bytes_total", fmt.Sprintf("codec=%q", gradientCodec)); n != 0 {
		t.Errorf("%.0f bytes went through %s", n, gradientCodec)
	}
	if n := sum(t, ps, "gradproxy_raw_bytes_total", `role="state"`); n == 0 {
		t.Error("no weights came back: the test shows nothing")
	}
}

// sum adds up a metric over the proxies.
func sum(t *testing.T, ps testbed.Proxies, metric string, labels ...string) float64 {
	t.Helper()
	n, err := ps.Sum(deadline(t, time.Minute), metric, labels...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// wantLearned fails the test unless every rank knows more than chance, whose loss is 2.3.
func wantLearned(t *testing.T, results []testbed.Result) {
	t.Helper()
	for _, r := range results {
		if !(r.Loss < 1.9) {
			t.Errorf("rank %d ends with a loss of %.3f: it does not learn", r.Rank, r.Loss)
		}
	}
}

// wantAccuracy fails the test unless every process of results ends with that accuracy at least, where guessing has 0.1.
func wantAccuracy(t *testing.T, minimum float64, results ...testbed.Result) {
	t.Helper()
	for _, r := range results {
		if !(r.Accuracy >= minimum) {
			t.Errorf("rank %d ends with an accuracy of %.3f, want %.2f", r.Rank, r.Accuracy, minimum)
		}
	}
}
