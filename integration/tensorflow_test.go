//go:build linux

package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// tensorflowJob returns a job of TensorFlow: its server and chief are at one site, and its workers at the other one.
// With one worker, or with two that step together, each run ends with the same weights.
func tensorflowJob(t *testing.T, mode string, workers int, args ...string) testbed.Job {
	t.Helper()
	var nodes []testbed.Node
	switch mode {
	case "mirrored":
		for i := range workers {
			nodes = append(nodes, testbed.Node{Role: "worker", Site: i % 2})
		}
	case "strategy":
		nodes = append(atSite(0, "ps", 1), atSite(0, "chief", 1)...)
		nodes = append(nodes, atSite(1, "worker", workers)...)
	default:
		nodes = append(atSite(0, "ps", 1), atSite(1, "worker", workers)...)
	}
	return nodeJob(t, "tensorflow", "tensorflow_job.py", nodes, append([]string{"--mode", mode}, args...)...)
}

// A job ends through the proxies with the weights of a direct run, and has learned by then: 20 steps end with 0.684,
// those of one worker with 0.646.
func TestTensorFlow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode    string
		workers int
		direct  string // the mode of the direct run, which ends with the same weights
	}{
		{"sync", 2, "sync"},
		{"mirrored", 2, "sync"},
		{"async", 1, "async"},
		{"strategy", 1, "strategy"},
	} {
		t.Run(fmt.Sprintf("%s, %d workers", c.mode, c.workers), func(t *testing.T) {
			want := directNodes(t, fmt.Sprint("tensorflow", c.direct, c.workers), tensorflowJob(t, c.direct, c.workers))
			got, ps := runNodes(t, fast, tensorflowJob(t, c.mode, c.workers), &testbed.Config{})
			byRole(t, ps)
			for _, r := range got.results {
				if r.WeightsSHA256 != want.results[0].WeightsSHA256 {
					t.Errorf("through the proxies rank %d ends with the weights %.8s, want the direct run's, %.8s", r.Rank, r.WeightsSHA256, want.results[0].WeightsSHA256)
				}
			}
			wantLearned(t, got.results)
			wantAccuracy(t, 0.6, got.results...)
		})
	}
}

// A tensor that a server's graph proves to be a gradient loses something, and nothing else does. On the user's word
// sums do as well: updates of Keras's optimizers, and in the ring the first pass, so that the replicas stay alike.
func TestTensorFlowWithLoss(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode    string
		workers int
		codec   string
		args    []string
	}{
		{"sync", 2, gradientCodec, []string{"--resource", "--optimizer", "momentum", "--lr", "0.02"}},
		{"async", 2, "int4", []string{"--optimizer", "adam", "--lr", "0.002"}},
		{"strategy", 2, "int4", []string{"--keras", "--optimizer", "momentum", "--lr", "0.02"}}, // whose operations are not fused
		{"mirrored", 3, "int4", []string{"--keras"}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			const steps = 40
			loss := testbed.Loss{Protocol: "tensorflow", Gradients: c.codec}
			if slices.Contains(c.args, "--keras") {
				loss = testbed.Loss{Gradients: c.codec}
			}
			got, ps := runNodes(t, fast, tensorflowJob(t, c.mode, c.workers, append([]string{"--steps", fmt.Sprint(steps)}, c.args...)...), &testbed.Config{Loss: loss})
			byRole(t, ps)
			wantLearned(t, got.results)
			minimum := float64(steps-4) * float64(got.results[0].DenseBytes)
			if c.mode != "strategy" && c.mode != "mirrored" { // else the steps are of all workers together, and half of a ring's bytes travel exactly
				minimum *= float64(c.workers)
			}
			if slices.Contains(c.args, "--keras") { // a tensor on the user's word earns trust before it loses something
				minimum /= 2
			}
			label := fmt.Sprintf("codec=%q", c.codec)
			raw, wire := tensors(t, ps, label)
			all, _ := tensors(t, ps, label, `role="gradient"`)
			t.Logf("%.0f bytes of gradients became %.0f with %s", raw, wire, c.codec)
			if raw < 0.8*minimum || wire > raw/5 || raw != all {
				t.Errorf("%.0f bytes became %.0f with %s, %.0f of gradients; want %.0f of gradients at least, and a fifth of them", raw, wire, c.codec, all, 0.8*minimum)
			}
			if c.mode == "mirrored" {
				wantReplicasEqual(t, got.results)
			}
		})
	}
}
