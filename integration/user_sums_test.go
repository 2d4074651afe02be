//go:build linux

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/tensor"
)

// Where nobody sees the processes and the user says that all sums are gradients, the content check finds out that some
// are none, of which no value has lost anything, and from there on nothing of the job loses anything. These jobs of
// DistributedDataParallel have all their gradients in one bucket, and sum other things of the same size after steps in
// which gradients lose something.
func TestContentEndsTheUsersWord(t *testing.T) {
	t.Parallel()
	const way = testbed.Way("3lc")
	for _, c := range []struct {
		name, environment string
		reason            tensor.Verdict
	}{
		{"momentum", "torch113", tensor.Replicated},
		{"max", "torch113", tensor.SingleSigned}, // of magnitudes
		{"average-10", "torch113", tensor.FirstWeights},
		{"ema-10", "torch215", tensor.FirstWeights},
	} {
		t.Run(fmt.Sprintf("%s/%s", c.name, c.environment), func(t *testing.T) {
			config := way.Config()
			config.Loss.Sums = "gradients"
			job := sumsJob(t, c.environment, 2, c.name, "--steps", "30")
			w := newGateways(t, 2, fast)
			ps := startProxies(t, w, config)
			wantSumsExact(t, runJob(t, w, job))
			wantDoubted(t, ps)
			if n := strings.Count(ps.Warnings(), fmt.Sprintf("reason=%q", c.reason)); n != len(ps) {
				t.Errorf("%d of %d proxies give the reason %q:\n%s", n, len(ps), c.reason, ps.Warnings())
			}
			if n, err := ps.Sent(deadline(t, time.Minute), "gradient", "3lc"); err != nil || n == 0 {
				t.Errorf("%.0f bytes of gradients lost something before, %v: the test shows nothing", n, err)
			}
		})
	}
}
