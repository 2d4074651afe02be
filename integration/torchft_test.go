//go:build linux

package integration

import (
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// TorchFT sums over process groups that are made anew at each quorum. The gradients of its DistributedDataParallel are
// proved in each of them, and keep their residuals. The weights that LocalSGD averages, and the changes of weights that
// DiLoCo does, travel exactly, as does all else.
func TestTorchFT(t *testing.T) {
	require.Named(t, "bpf", bpf.Permitted() == nil, "run the tests with all capabilities")
	job := newJob(t, "torchft", "torchft_job.py", 2, nil)
	job.Args = []string{"--folder", t.TempDir(), "--steps", "9"}
	config := testbed.Way("3lc").Config()
	config.Loss.Sums = "proved"
	w := newWAN(t, job.Ranks, fast)
	ps := startProxies(t, w, config)
	results := runJob(t, w, job)
	wantSumsExact(t, results)
	wantReplicasEqual(t, results)
	ctx := deadline(t, time.Minute)
	wantProved(t, ctx, ps, config, results)
	if n, err := ps.Count(ctx, "gradproxy_tensors_forgotten_total"); err != nil || n != 0 {
		t.Errorf("%.0f residuals are lost, %v; want 0: those of a group wait for the next one", n, err)
	}
	if n, err := ps.Sum(ctx, "gradproxy_tensors_resumed_total"); err != nil || n == 0 {
		t.Errorf("%.0f residuals go on in another process group, %v; want some", n, err)
	}
}
