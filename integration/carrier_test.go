//go:build linux

package integration

import (
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// Over carriers of datagrams, or chosen ones, a job ends with the direct run's weights, though the WAN loses packets and is a black hole for a while.
func TestJobOverDatagrams(t *testing.T) {
	job := torchJob(t, "torch113", 2, "--steps", "12", "--hidden", "256", "--timeout", "120")
	want := direct(t, job)
	for _, carrier := range []string{tunnel.CarrierDTLS, tunnel.CarrierAuto} {
		t.Run(carrier, func(t *testing.T) {
			w := newWAN(t, 2, wansim.Link{Rate: 50e6 / 8, Delay: 10 * time.Millisecond, Loss: 0.01, Queue: 1 << 20, Seed: 1})
			startProxies(t, w, testbed.Config{Carrier: carrier, Congestion: "cubic"})
			run := startJob(t, w, job)
			if err := run.Step(deadline(t, time.Minute), 3); err != nil {
				t.Fatal(err)
			}
			if err := w.Outage(t.Context(), 3*time.Second); err != nil {
				t.Fatal(err)
			}
			got := run.Wait()
			if err := testbed.Failures(got); err != nil {
				t.Fatal(err)
			}
			sameResults(t, want.results, got)
			report(t, leg{results: got, bytes: w.LinkBytes()})
		})
	}
}
