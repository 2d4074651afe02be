//go:build linux

package integration

import (
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// upgraded runs a job whose proxies are replaced three times in its midst, one after the other, and returns its results.
func upgraded(t *testing.T, w *testbed.WAN, job testbed.Job, steps ...int) []testbed.Result {
	t.Helper()
	c := testbed.Config{Upgrades: true}
	ps := startProxies(t, w, c)
	run := startJob(t, w, job)
	for i, step := range steps {
		for j, rank := range run.Ranks {
			if job.Nodes != nil && job.Nodes[j].Role != testbed.Worker {
				continue // it makes no steps
			}
			if err := rank.Step(deadline(t, 2*time.Minute), step); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := program(t).Replace(deadline(t, time.Minute), w, ps, i%len(ps), c); err != nil {
			t.Fatal(err)
		}
		t.Logf("upgrade %d at step %d, site %d: %.2f s until the new process was ready", i+1, step, i%len(ps), time.Since(began).Seconds())
	}
	all := run.Wait()
	if err := testbed.Failures(all); err != nil {
		t.Fatal(err)
	}
	var got []testbed.Result
	for _, r := range all {
		if job.Nodes == nil || r.Role == testbed.Worker {
			got = append(got, r)
		}
	}
	return got
}

// A job of DistributedDataParallel goes through three upgrades of its proxies, and ends with the direct run's weights.
func TestDDPSurvivesUpgrades(t *testing.T) {
	want := direct(t, torchJob(t, "torch215", 2))
	got := upgraded(t, newWAN(t, 2, lan), torchJob(t, "torch215", 2, "--timeout", "120"), 2, 4, 6)
	sameResults(t, want.results, got)
}

// So does a job of MXNet, whose connections would be lost without a word.
func TestMXNetSurvivesUpgrades(t *testing.T) {
	mode := mxnetMode{twoWorkers, []string{"--steps", "24", "--sleep", "0.2"}, nil}
	want, _ := directMXNet(t, mode)
	got := upgraded(t, newWAN(t, 2, fast), mode.job(t), 4, 9, 14)
	sameResults(t, want.results, got)
}
