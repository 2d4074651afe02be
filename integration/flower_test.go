//go:build linux

package integration

import (
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A flowerRelease is a release of Flower, and the interface that is used of it.
type flowerRelease struct{ environment, mode string }

var (
	flowerJoin = flowerRelease{"flower17", "join"}   // 1.7: a gRPC stream for each client
	flowerGRPC = flowerRelease{"flower139", "fleet"} // 1.39: objects over gRPC
	flowerHTTP = flowerRelease{"flower", "fleet"}    // 1.42: objects over HTTP
)

// job returns a job of the release with n clients at another site than their server.
func (r flowerRelease) job(t *testing.T, n int, args ...string) testbed.Job {
	t.Helper()
	return nodeJob(t, r.environment, "flower_job.py", append(atSite(0, "server", 1), atSite(1, "client", n)...), append([]string{"--mode", r.mode}, args...)...)
}

// Releases end with the same weights as each other, and so do all of them through the proxies.
func TestFlower(t *testing.T) {
	join := flowerRelease{"flower", "join"}
	want := map[string]leg{ // numpy adds up in another order in Flower 1.7's environment
		"flower17": directNodes(t, "flower17", flowerJoin.job(t, 2)),
		"flower":   directNodes(t, "flower", join.job(t, 2)),
	}
	want["flower139"] = want["flower"]
	for _, r := range []flowerRelease{flowerJoin, join, flowerGRPC, flowerHTTP} {
		t.Run(r.environment+", "+r.mode, func(t *testing.T) {
			t.Parallel() // a SuperNode asks for messages every 3 s, and in between it waits
			got, ps := runNodes(t, fast, r.job(t, 2), &testbed.Config{})
			sameResults(t, want[r.environment].results, got.results)
			byRole(t, ps)
			if accuracy := got.results[0].Accuracy; accuracy < flowerAccuracy {
				t.Errorf("accuracy %.3f, want %.2f", accuracy, flowerAccuracy)
			}
		})
	}
}

// flowerAccuracy is that of three rounds, at least.
const flowerAccuracy = 0.7
