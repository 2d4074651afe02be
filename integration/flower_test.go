//go:build linux

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
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
	t.Parallel() // with TestFlowerOverSlowLink
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
			// Two clients get four models three times each: before the first round, and each to train and to judge.
			if raw, wire := tensors(t, ps[:1], `codec="lossless"`); raw < 8*model || wire > raw/3 {
				t.Errorf("%.0f bytes of models became %.0f on their way to the clients, want 8 models of %d at least, and a third", raw, wire, model)
			}
			if accuracy := got.results[0].Accuracy; accuracy < flowerAccuracy {
				t.Errorf("accuracy %.3f, want %.2f", accuracy, flowerAccuracy)
			}
		})
	}
}

// A model crosses the WAN once, however many clients there are behind it.
func TestFlowerModelsCrossOnce(t *testing.T) {
	t.Parallel()
	down := func(n int) (raw, wire float64) {
		_, ps := runNodes(t, fast, flowerJoin.job(t, n, "--local", "5"), &testbed.Config{})
		raw, wire = tensors(t, ps[:1], `role="state"`)
		t.Logf("%d clients: %.0f bytes of models became %.0f", n, raw, wire)
		return raw, wire
	}
	rawTwo, two := down(2) // the model of one would be its own last result, which costs nothing
	rawFour, four := down(4)
	if rawFour < 1.9*rawTwo || four > 1.1*two {
		t.Errorf("models for four clients, %.0f bytes, became %.0f; for two, %.0f bytes, %.0f", rawFour, four, rawTwo, two)
	}
}

// model is the size of the model in bytes.
const model = 4 * (784*64 + 64 + 64*10 + 10)

// flowerAccuracy is that of three rounds, at least.
const flowerAccuracy = 0.7

// Over a slow link SuperNodes of Flower 1.42 never end: a node gives up a push that is not answered within 30 s of its last byte, and sends it again. Through the
// proxies the same job ends, and nothing is sent twice. A busy machine may delay an answer for 30 s by itself: then the job runs once more. Pushes that are sent again cost nothing on the link.
func TestFlowerOverSlowLink(t *testing.T) {
	t.Parallel()      // it waits for the link
	const wide = 1275 // hidden neurons with which an array takes 4 MB
	link := wansim.Link{Rate: 150e3, Delay: 10 * time.Millisecond, Queue: 64 << 10}
	for again := false; ; again = true {
		job := flowerHTTP.job(t, 2, "--hidden", fmt.Sprint(wide), "--rounds", "1", "--evaluate", "0", "--local", "2", "--timeout", "400")
		got, ps := runNodes(t, link, job, &testbed.Config{})
		byRole(t, ps)
		up, wire := tensors(t, ps[1:], `role="exact"`)
		results := 2 * float64(got.results[0].DenseBytes)
		t.Logf("%.0f bytes of results, of which nodes have sent %.0f, became %.0f", results, up, wire)
		if up < 0.99*results || wire > 0.9*results {
			t.Fatalf("nodes have sent %.0f bytes, which became %.0f; want the %.0f of their results, and fewer on the link", up, wire, results)
		}
		if up <= 1.01*results {
			return
		}
		if again {
			t.Fatalf("nodes have sent %.0f bytes, and again in a second run; want the %.0f of their results once", up, results)
		}
	}
}
