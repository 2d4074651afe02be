//go:build linux

package integration

import (
	"fmt"
	"testing"
)

// JAX leaves every tag 0, sends each array on its own and has a gRPC service for its rendezvous.
func TestJAX(t *testing.T) {
	t.Parallel()
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprintf("shard_map/ranks=%d", ranks), func(t *testing.T) {
			compare(t, jaxJob(t, ranks))
		})
	}
	t.Run("jit", func(t *testing.T) {
		compare(t, jaxJob(t, 2, "--mode", "jit"))
	})
}
