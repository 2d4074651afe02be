//go:build linux

package integration

import (
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// While the WAN is a black hole the tunnel holds the job's connections; the job sees a pause.
func TestJobSurvivesBlackHole(t *testing.T) {
	job := torchJob(t, "torch113", 2, "--steps", "12", "--timeout", "120")
	want := direct(t, job)
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
	report(t, leg{results: got, bytes: w.LinkBytes()})
}

// Gloo has no keep-alives: connections that say nothing for long must stay.
func TestIdleConnectionsLive(t *testing.T) {
	want := direct(t, torchJob(t, "torch113", 2))
	w := newWAN(t, 2, lan)
	startProxies(t, w, testbed.Config{})
	got := runJob(t, w, torchJob(t, "torch113", 2, "--idle", seconds(*idle), "--timeout", seconds(*idle+time.Minute)))
	sameResults(t, want.results, got)
}
