//go:build linux

package integration

import (
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// Each release's calls are seen: buckets of gradients, and after each step a sum of something else.
func TestProbedCalls(t *testing.T) {
	const steps = 12
	require.Named(t, "bpf", bpf.Permitted() == nil, "run the tests with all capabilities")
	for _, environment := range []string{"torch113", "torch215"} {
		t.Run(environment, func(t *testing.T) {
			w := newWAN(t, 2, fast)
			ps := startProxies(t, w, testbed.Way(gradientCodec).Config())
			results := runJob(t, w, torchJob(t, environment, 2, "--steps", "12", "--hidden", "512", "--metric"))
			count := func(metric string) float64 {
				n, err := ps.Sum(deadline(t, time.Minute), metric)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			for count("gradproxy_probe_processes") > 0 { // until the calls of the last second are counted
				if t.Context().Err() != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			calls, buckets := count("gradproxy_probe_calls_total"), count("gradproxy_probe_buckets_total")
			t.Logf("torch %s: %.0f of %.0f calls are buckets", results[0].Version, buckets, calls)
			if least := float64(2 * steps); buckets < least || calls-buckets < least {
				t.Errorf("%.0f of %.0f calls are buckets, want at least %.0f and as many others", buckets, calls, least)
			}
			for _, metric := range []string{"gradproxy_probe_contradictions_total", "gradproxy_probe_failures_total"} {
				if n := count(metric); n > 0 {
					t.Errorf("%s is %.0f", metric, n)
				}
			}
		})
	}
}
