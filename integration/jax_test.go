//go:build linux

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// JAX leaves every tag 0, sends each array on its own and has a gRPC service for its rendezvous.
func TestJAX(t *testing.T) {
	t.Parallel()
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprintf("shard_map/ranks=%d", ranks), func(t *testing.T) {
			wantRanksNamed(t, compare(t, jaxJob(t, ranks)))
		})
	}
	t.Run("jit", func(t *testing.T) {
		compare(t, jaxJob(t, 2, "--mode", "jit"))
	})
}

// wantRanksNamed fails the test unless the proxies name the ranks of the tensors that cross between the first site,
// which has JAX's coordination service, and another one. Site i has rank i. Between two other sites nothing tells a
// rank, and the addresses stand for them.
func wantRanksNamed(t *testing.T, ps testbed.Proxies) {
	t.Helper()
	for i, p := range ps {
		list, err := p.Tensors(deadline(t, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		own, named, gloo := fmt.Sprintf("rank %d of %d", i, len(ps)), 0, 0
		for _, x := range list {
			if x.Protocol != "gloo" {
				continue
			}
			gloo++
			switch {
			case x.From == own && strings.HasPrefix(x.To, "rank ") && x.To != own:
				named++
			case strings.HasPrefix(x.From, "rank ") || strings.HasPrefix(x.To, "rank "):
				t.Errorf("site %d sends a tensor from %q to %q, want from %q", i, x.From, x.To, own)
			}
		}
		// In JAX's ring rank r sends to rank r-1.
		want := gloo
		if i > 1 {
			want = 0
		}
		if t.Logf("site %d: %d of %d tensors name their ranks", i, named, gloo); gloo == 0 || named != want {
			t.Errorf("site %d names the ranks of %d of %d tensors, want %d", i, named, gloo, want)
		}
	}
}
