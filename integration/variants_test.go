//go:build linux

package integration

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// variantsJob returns a job of two ranks that uses DDP in these ways.
func variantsJob(t *testing.T, environment, variants string, args ...string) testbed.Job {
	t.Helper()
	job := newJob(t, environment, "torch_variants.py", 2, nil)
	job.Args = append([]string{"--folder", t.TempDir(), "--variants", variants, "--timeout", "60"}, args...)
	return job
}

// variants are the ways to use DDP of torch_variants.py, but for the ones that fork or execute a program.
const variants = "zero,powersgd,postlocal,groups,alike,accumulate,unused,normalized,half,empty,uneven"

// Jobs shard their optimizer, sum by a communication hook, have several process groups, accumulate gradients, leave
// parameters unused, normalize over all ranks, are of bfloat16, have a bucket without elements, or fewer batches at one
// rank. Losslessly all end with the weights of a direct run.
func TestVariantsEndAsDirectly(t *testing.T) {
	t.Parallel()
	job := variantsJob(t, "torch215", variants)
	want := runJob(t, newWAN(t, job.Ranks, fast), job)
	w := newWAN(t, job.Ranks, fast)
	startProxies(t, w, testbed.Config{})
	job = variantsJob(t, "torch215", variants)
	got := runJob(t, w, job)
	sameResults(t, want, got)
	wantSumsExact(t, got)
}

// The same jobs with loss: their gradients are proved, and nothing else of them loses anything. A process may train in
// another PID namespace, be forked, have children that inherit its connections, and execute its program anew.
func TestVariantsAreProved(t *testing.T) {
	require.Named(t, "bpf", bpf.Permitted() == nil, "run the tests with all capabilities")
	require.Command(t, "unshare")
	for _, c := range []struct {
		name, environment, variants string
		args, under                 []string
	}{
		{name: "in one process", environment: "torch215", variants: variants},
		{name: "in processes that fork", environment: "torch113", variants: "workers,restart,empty,uneven", args: []string{"--fork"},
			under: []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := testbed.Way("3lc+int4").Config()
			config.Loss.Sums = "proved"
			job := variantsJob(t, c.environment, c.variants, append(c.args, "--pause", "0.5")...)
			job.Under = c.under
			w := newWAN(t, job.Ranks, fast)
			ps := startProxies(t, w, config)
			results := runJob(t, w, job)
			wantSumsExact(t, results)
			wantProved(t, deadline(t, time.Minute), ps, config, results)
		})
	}
}

// Two threads call collectives of one process group at once, and a sum of noise gets the tag that a bucket's was about
// to get. Neither is proved, so that the noise travels exactly. All other gradients lose something.
func TestTwoThreadsOfAGroup(t *testing.T) {
	require.Named(t, "bpf", bpf.Permitted() == nil, "run the tests with all capabilities")
	require.Command(t, "gcc")
	job := variantsJob(t, "torch215", "threads", "--pause", "0.5")
	library := filepath.Join(t.TempDir(), "tag_order.so")
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-fexceptions", "-o", library, "testdata/tag_order.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	job.Env = []string{"LD_PRELOAD=" + library}
	config := testbed.Way("3lc+int4").Config()
	config.Loss.Sums = "proved"
	w := newWAN(t, job.Ranks, fast)
	ps := startProxies(t, w, config)
	results := runJob(t, w, job)
	wantSumsExact(t, results)
	wantProved(t, deadline(t, time.Minute), ps, config, results)
}
