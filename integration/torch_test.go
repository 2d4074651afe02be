//go:build linux

package integration

import (
	"fmt"
	"testing"
)

// DDP is what most jobs are: a ring all-reduce of the gradients each step. torch 1.13 speaks Gloo without a handshake,
// torch 2.15 with one.
func TestTorchDDP(t *testing.T) {
	for _, environment := range []string{"torch113", "torch215"} {
		for _, ranks := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/ranks=%d", environment, ranks), func(t *testing.T) {
				compare(t, torchJob(t, environment, ranks))
			})
		}
	}
}

// Each of these puts something else on the wire than float32 gradients.
func TestTorchModes(t *testing.T) {
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
			compare(t, torchJob(t, c.environment, 2, c.args...))
		})
	}
}
