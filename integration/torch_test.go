//go:build linux

package integration

import (
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// Most jobs use DDP: a ring all-reduce of the gradients each step. torch 1.13 speaks Gloo without a handshake,
// torch 2.15 with one.
func TestTorchDDP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		environment string
		ranks       int
	}{{"torch113", 2}, {"torch113", 3}, {"torch215", 2}, {"torch215", 3}} {
		t.Run(fmt.Sprintf("%s/ranks=%d", c.environment, c.ranks), func(t *testing.T) {
			t.Parallel()
			compare(t, torchJob(t, c.environment, c.ranks))
		})
	}
}

// Each of these puts something else on the wire than float32 gradients.
func TestTorchModes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, environment string
		args              []string
	}{
		{"bfloat16 gradients", "torch215", []string{"--hook", "bf16"}},
		{"float16 gradients", "torch215", []string{"--hook", "fp16"}},
		{"buffers, used maps and metrics", "torch113", []string{"--norm", "--unused", "--metric"}},
		{"FSDP", "torch215", []string{"--mode", "fsdp"}},
		{"post-local SGD", "torch113", []string{"--mode", "postlocal", "--local-steps", "3"}},
		{"averaged weights", "torch215", []string{"--mode", "localsgd", "--local-steps", "2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			compare(t, torchJob(t, c.environment, 2, c.args...))
		})
	}
}

// Loss in the first phase of the rings leaves the replicas identical, whatever the number of ranks; in both phases the
// job still learns.
func TestTorchWithLoss(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, environment string
		ranks             int
		way               testbed.Way
		lossy             float64 // bytes of a parameter's gradient that a rank sends with loss in all, at least
		args              []string
	}{
		{"DDP", "torch113", 2, gradientCodec, 5.5 * 4, nil}, // from the seventh step of twelve on, since the tensors earn trust
		{"DDP", "torch113", 3, gradientCodec, 5.5 * 4, nil},
		{"DDP", "torch215", 2, gradientCodec, 5.5 * 4, nil},
		{"DDP", "torch215", 3, gradientCodec, 5.5 * 4, nil},
		{"DDP", "torch215", 3, gradientCodec + "+int4", 5.5 * 4, nil},
		{"bfloat16 gradients", "torch215", 2, gradientCodec, 5 * 2, []string{"--hook", "bf16"}},
		{"float16 gradients", "torch215", 2, gradientCodec, 5 * 2, []string{"--hook", "fp16"}},
		{"FSDP", "torch215", 3, gradientCodec, 3.5 * 4, []string{"--mode", "fsdp", "--metric", "--metric-size", "5000", "--metric-every", "3", "--objects"}},
		{"FSDP beside much else", "torch215", 2, gradientCodec, 3.5 * 4, []string{"--mode", "fsdp", "--metric", "--metric-size", "5000", "--metric-every", "3", "--objects", "2000", "--scores"}},
	} {
		t.Run(fmt.Sprintf("%s/%s/ranks=%d/%s", c.name, c.environment, c.ranks, c.way), func(t *testing.T) {
			t.Parallel()
			job := torchJob(t, c.environment, c.ranks, append([]string{"--steps", "12", "--hidden", "512"}, c.args...)...)
			w := newWAN(t, c.ranks, fast)
			ps := startProxies(t, w, c.way.Config())
			results := runJob(t, w, job)
			report(t, leg{results: results, bytes: w.LinkBytes()})
			wantLost(t, ps, c.way, int(c.lossy*float64((c.ranks-1)*results[0].Parameters))) // the first pass of the ring
			if c.way == gradientCodec {
				wantReplicasEqual(t, results)
			}
			for _, r := range results {
				if !(r.Loss < 1.6) { // chance has 2.3
					t.Errorf("rank %d ends with a loss of %.3f: it does not learn", r.Rank, r.Loss)
				}
			}
		})
	}
}
