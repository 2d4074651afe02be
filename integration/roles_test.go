//go:build linux

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// gradientCodec is the lossy codec of gradients in these tests.
const gradientCodec = "3lc(s=1.75)"

// fast is a link for tests whose time is not spent on it.
var fast = wansim.Link{Rate: 1e9 / 8, Delay: time.Millisecond, Queue: 1 << 20}

// The ways on which a job that says its sums are gradients may lose something.
var lossyWays = []testbed.Way{gradientCodec, gradientCodec + "+int4"}

// On Gloo's wire a sum of weights or of metrics looks like one of gradients, and the configuration says of all of them
// that they are. Each of these jobs also sends something else in an all-reduce, or weights in an all-gather. The ranks
// keep their inputs and results; one bit that differs fails the test. And real gradients must have
// lost something, or the test would show nothing.
func TestWhatIsNoGradientTravelsExactly(t *testing.T) {
	t.Parallel()
	torch := func(environment string, args ...string) func(t *testing.T) testbed.Job {
		return func(t *testing.T) testbed.Job {
			return torchJob(t, environment, 2, append([]string{"--hidden", "128", "--batch", "64"}, args...)...)
		}
	}
	jax := func(args ...string) func(t *testing.T) testbed.Job {
		return func(t *testing.T) testbed.Job { return jaxJob(t, 2, append([]string{"--batch", "64"}, args...)...) }
	}
	const (
		mlp = 4 * ((784+1)*128 + (128+1)*10) // bytes of weights
		// of the two buckets with another layer of 128
		small = 4 * ((128+1)*128 + (128+1)*10)
		large = 4 * (784 + 1) * 128
	)
	for _, c := range []struct {
		name  string
		job   func(t *testing.T) testbed.Job
		exact map[string]int // collectives that must be exact, by operation
		lossy int            // bytes of gradients that lose something in the first phase, at least
		once  bool           // with sums that are exact only

		doubted bool // the proxies find out that sums are no gradients, and nothing loses anything from there on
	}{
		{
			// The first averaged weights have the place and the size of the one bucket of gradients before them.
			name:  "post-local SGD",
			job:   torch("torch215", "--mode", "postlocal", "--steps", "21", "--warmup", "10", "--local-steps", "5"),
			exact: map[string]int{"sum": 3}, lossy: 4 * mlp, once: true,
		},
		{
			name:  "post-local SGD, Gloo without handshake",
			job:   torch("torch113", "--mode", "postlocal", "--steps", "21", "--warmup", "10", "--local-steps", "5"),
			exact: map[string]int{"sum": 3}, lossy: 4 * mlp, once: true,
		},
		{
			// The first average comes before gradients have earned trust, and ends it for all sums of the job.
			name:  "weights averaged every 5 steps, among gradients",
			job:   torch("torch215", "--mode", "byhand", "--steps", "26", "--average", "all", "--local-steps", "5"),
			exact: map[string]int{"sum": 5}, doubted: true,
		},
		{
			name:  "one layer's weights averaged every 5 steps, beside DDP",
			job:   torch("torch215", "--hidden", "128,128", "--bucket-mb", "0.05", "--steps", "22", "--average", "first", "--local-steps", "5"),
			exact: map[string]int{"sum": 4}, lossy: 4 * small, once: true,
		},
		{
			// The metric has not a third of the gradients' keys: they earn trust as without it.
			name:  "FSDP's all-gathers, and a metric in every third step",
			job:   torch("torch215", "--mode", "fsdp", "--steps", "12", "--metric", "noise", "--metric-every", "3", "--metric-size", "17802"),
			exact: map[string]int{"gather": 0, "sum": 4}, lossy: 4 * mlp,
		},
		{
			name:  "a metric of the size of a bucket",
			job:   torch("torch215", "--hidden", "128,128", "--bucket-mb", "0.05", "--steps", "14", "--metric", "squares", "--metric-size", "17802"),
			exact: map[string]int{"sum": 14}, lossy: 3 * large, once: true,
		},
		{
			// It changes from step to step as gradients do: only its place can tell.
			name:  "a metric that changes like gradients",
			job:   torch("torch215", "--hidden", "128,128", "--bucket-mb", "0.05", "--steps", "14", "--metric", "noise", "--metric-size", "100480"),
			exact: map[string]int{"sum": 14}, lossy: 4 * small, once: true,
		},
		{
			name:  "JAX's plan, shifted once and again",
			job:   jax("--hidden", "256,256,256", "--steps", "26", "--shift", "9,17,18,24"),
			exact: map[string]int{"sum": 4}, lossy: 1 << 20, once: true,
		},
		{
			// Arrays of 4 MiB: all messages have 1 MiB, whatever they are of.
			name:  "JAX's plan, shifted without a length that shows it",
			job:   jax("--hidden", "1024,1024,1024", "--steps", "31", "--shift", "26,28,30"),
			exact: map[string]int{"sum": 3}, lossy: 1 << 20, once: true,
		},
	} {
		for _, way := range lossyWays {
			if c.once && way != gradientCodec {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", c.name, way), func(t *testing.T) {
				t.Parallel()
				folder := t.TempDir()
				job := c.job(t)
				job.Args = append(job.Args, "--record", folder)
				w := newWAN(t, 2, fast)
				ps := startProxies(t, w, way.Config())
				before := w.LinkBytes()
				results := runJob(t, w, job)
				report(t, leg{results: results, bytes: w.LinkBytes() - before})
				wantExact(t, folder, c.exact)
				if c.doubted {
					wantDoubted(t, ps)
				} else {
					wantLost(t, ps, way, c.lossy)
				}
				if way == gradientCodec {
					wantReplicasEqual(t, results)
				}
			})
		}
	}
}

// wantDoubted fails the test unless all proxies have found that a sum of the job is no gradient.
func wantDoubted(t *testing.T, ps testbed.Proxies) {
	t.Helper()
	if n := strings.Count(ps.Warnings(), "a sum of the job is no gradient"); n != len(ps) {
		t.Errorf("%d of %d proxies say that a sum is no gradient:\n%s", n, len(ps), ps.Warnings())
	}
}

// wantLost fails the test unless at least min bytes of gradients have lost something, and, if the way lets them, an
// eighth of that of their sums, which change less from step to step and earn trust later.
func wantLost(t *testing.T, ps testbed.Proxies, way testbed.Way, min int) {
	t.Helper()
	loss := way.Config().Loss
	for _, x := range []struct {
		role, codec string
		min         int
	}{{"gradient", loss.Gradients, min}, {"aggregate", loss.Aggregates, min / 8}} {
		if x.codec == "" {
			continue
		}
		n, err := ps.Sent(deadline(t, time.Minute), x.role, x.codec)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%.1f MB of role %s went through %s", n/1e6, x.role, x.codec)
		if n < float64(x.min) {
			t.Errorf("%.0f bytes of role %s went through %s, want %d: the test shows nothing", n, x.role, x.codec, x.min)
		}
	}
}

// wantReplicasEqual fails the test unless all ranks end with the same weights.
func wantReplicasEqual(t *testing.T, results []testbed.Result) {
	t.Helper()
	for _, r := range results {
		if r.WeightsSHA256 != results[0].WeightsSHA256 {
			t.Errorf("rank %d ends with weights %.8s, rank 0 with %.8s", r.Rank, r.WeightsSHA256, results[0].WeightsSHA256)
		}
	}
}
