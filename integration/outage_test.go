//go:build linux

package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// While the WAN is a black hole the tunnel holds the job's connections; the job sees a pause.
func TestJobSurvivesBlackHole(t *testing.T) {
	t.Parallel() // it waits most of the time
	want := direct(t, torchJob(t, "torch113", 2))
	job := torchJob(t, "torch113", 2, "--timeout", "120", "--sleep", "0.2")
	w := newWAN(t, 2, lan)
	startProxies(t, w, testbed.Config{})
	run := startJob(t, w, job)
	if err := run.Step(deadline(t, time.Minute), 3); err != nil {
		t.Fatal(err)
	}
	if err := w.Outage(t.Context(), *outage); err != nil {
		t.Fatal(err)
	}
	got := run.Wait()
	if err := testbed.Failures(got); err != nil {
		t.Fatal(err)
	}
	sameResults(t, want.results, got)
	for _, r := range got {
		if slowest := slices.Max(r.EachStepSeconds); slowest < outage.Seconds()/2 {
			t.Errorf("no step of rank %d took longer than %.1f s: the test shows nothing", r.Rank, slowest)
		}
	}
	report(t, leg{results: got, bytes: w.LinkBytes()})
}

// Gloo has no keep-alives: connections that say nothing for long must stay.
func TestIdleConnectionsLive(t *testing.T) {
	t.Parallel() // it waits most of the time
	want := direct(t, torchJob(t, "torch113", 2))
	w := newWAN(t, 2, lan)
	startProxies(t, w, testbed.Config{})
	got := runJob(t, w, torchJob(t, "torch113", 2, "--idle", seconds(*idle), "--timeout", seconds(*idle+time.Minute)))
	sameResults(t, want.results, got)
}
