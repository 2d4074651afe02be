//go:build linux

package integration

import (
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// torchft sums over process groups that are made anew at each quorum. The gradients of its DistributedDataParallel are proved in each of them. The
// weights that LocalSGD averages, and the changes of weights that DiLoCo does, travel exactly, as does all else.
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
	wantProved(t, deadline(t, time.Minute), ps, config, results)
}
