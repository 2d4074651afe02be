//go:build linux

package integration

import (
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// Where nobody sees the processes and the user says that all sums are gradients, the results of sums show that some are none: each proxy lets at most
// the first lose something, and then nothing of the job.
func TestResultsEndTheUsersWord(t *testing.T) {
	const way = testbed.Way("3lc")
	for _, c := range []string{"momentum", "max", "ema-5"} {
		t.Run(c, func(t *testing.T) {
			config := way.Config()
			config.Loss.Sums = "gradients"
			job := sumsJob(t, "torch113", 2, c, "--steps", "30")
			w := newGateways(t, 2, fast)
			ps := startProxies(t, w, config)
			for _, r := range runJob(t, w, job) {
				inexact := 0
				for _, n := range r.Inexact {
					inexact += n
				}
				if r.Sums == 0 || inexact > 2 {
					t.Errorf("rank %d: of %d sums that are no gradients these are inexact: %v", r.Rank, r.Sums, r.Inexact)
				}
				t.Logf("rank %d: %d sums, inexact %v, worst %.2g", r.Rank, r.Sums, r.Inexact, r.Worst)
			}
			wantDoubted(t, ps)
		})
	}
}
