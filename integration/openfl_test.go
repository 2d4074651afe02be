//go:build linux

package integration

import (
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// OpenFL stands for frameworks over gRPC whose messages nobody has described: a job ends with the direct run's weights,
// for fewer bytes, and the model that the aggregator sends crosses the WAN once for both collaborators, and as a
// difference.
func TestOpenFL(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, c *testbed.Config) (r testbed.Result, down, up uint64) {
		t.Helper()
		job := newJob(t, "openfl", "openfl_job.py", 2, nil)
		job.Args = nil
		w := newWAN(t, 2, fast)
		var ps testbed.Proxies
		if c != nil {
			ps = startProxies(t, w, *c)
		}
		beforeDown, beforeUp := w.LinkBytesOf(0, 1)
		r = runJob(t, w, job)[0]
		down, up = w.LinkBytesOf(0, 1)
		t.Logf("openfl %s, %d collaborators: %d parameters, loss %.4f, accuracy %.3f, weights %.8s, %.1f s, %d bytes down, %d up",
			r.Version, r.World, r.Parameters, r.Loss, r.Accuracy, r.WeightsSHA256, r.Seconds, down-beforeDown, up-beforeUp)
		if n := sum(t, ps, "gradproxy_parsers_gave_up_total"); n != 0 {
			t.Errorf("%.0f directions of connections stopped being understood", n)
		}
		return r, down - beforeDown, up - beforeUp
	}
	var want testbed.Result
	var wantDown, wantUp uint64
	t.Run("direct", func(t *testing.T) { want, wantDown, wantUp = run(t, nil) })
	t.Run("lossless", func(t *testing.T) {
		got, down, up := run(t, &testbed.Config{})
		if got.WeightsSHA256 != want.WeightsSHA256 || want.WeightsSHA256 == "" {
			t.Errorf("the job ends with weights %.8s, directly with %.8s", got.WeightsSHA256, want.WeightsSHA256)
		}
		wantAccuracy(t, 0.7, got)
		if down > wantDown*7/10 || up >= wantUp {
			t.Errorf("%d bytes down and %d up, want less than 0.7 of the %d and fewer than the %d of a direct run", down, up, wantDown, wantUp)
		}
	})
}
