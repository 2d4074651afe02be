//go:build linux

package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A flowerRelease is a release of Flower, and the interface that is used of it.
type flowerRelease struct{ environment, mode string }

var (
	flowerJoin = flowerRelease{"flower17", "join"}   // 1.7: a gRPC stream for each client
	flowerSets = flowerRelease{"flower118", "fleet"} // 1.18: record sets over gRPC
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
	want["flower118"], want["flower139"] = want["flower"], want["flower"]
	for _, r := range []flowerRelease{flowerJoin, join, flowerSets, flowerGRPC, flowerHTTP} {
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

// Models have arrays of any type, shape and order, some without elements or with one, and strategies send others than
// clients do: an average of integers has fractions. Without loss they all arrive as they are.
func TestFlowerOfOtherArrays(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"FedAvg", "FedAdam"} {
		t.Run(strategy, func(t *testing.T) {
			job := flowerJoin.job(t, 2, "--others", "1", "--strategy", strategy)
			want, _ := runNodes(t, fast, job, nil)
			got, ps := runNodes(t, fast, job, &testbed.Config{})
			sameResults(t, want.results, got.results)
			byRole(t, ps)
			if raw, wire := tensors(t, ps, `codec="lossless"`); raw < 8<<20 || wire > raw/3 {
				t.Errorf("%.0f bytes of arrays became %.0f, want 8 MiB at least, and a third", raw, wire)
			}
		})
	}
}

// Weights may lose something in messages of a Join, which no id covers: by a rule on them a job ends with the accuracy
// of a direct run, and they take fewer bytes than without loss.
func TestFlowerWithLoss(t *testing.T) {
	t.Parallel()
	type run struct {
		leg
		codec string
		share float64 // of the bytes that weights take without loss, at most
		wire  float64
	}
	runs := []*run{{codec: "lossless"}, {codec: "int8", share: 0.5}, {codec: "int4", share: 0.35}}
	var direct leg
	t.Run("legs", func(t *testing.T) {
		t.Run("direct", func(t *testing.T) {
			t.Parallel()
			direct = directNodes(t, "flower17", flowerJoin.job(t, 2))
		})
		for _, r := range runs {
			t.Run(r.codec, func(t *testing.T) {
				t.Parallel()
				l, ps := runNodes(t, fast, flowerJoin.job(t, 2), &testbed.Config{Loss: testbed.Loss{Protocol: "flower", State: r.codec}})
				byRole(t, ps)
				_, r.wire = tensors(t, ps, `role="state"`)
				r.leg = l
			})
		}
	})
	if len(direct.results) == 0 || slices.ContainsFunc(runs, func(r *run) bool { return len(r.results) == 0 }) {
		return // a leg says why
	}
	for _, r := range runs[1:] {
		if a, b := r.results[0], direct.results[0]; a.Accuracy < b.Accuracy-0.02 || a.WeightsSHA256 == b.WeightsSHA256 {
			t.Errorf("%s: the job ends with accuracy %.3f and weights %.8s, directly with %.3f and %.8s", r.codec, a.Accuracy, a.WeightsSHA256, b.Accuracy, b.WeightsSHA256)
		}
		if whole := runs[0].wire; r.wire > r.share*whole || r.wire == 0 {
			t.Errorf("%s: weights take %.0f bytes, want at most %.2f of the %.0f without loss", r.codec, r.wire, r.share, whole)
		}
	}
}

// A model crosses the WAN once, however many clients there are behind it: for one it takes as much, if another client
// trains beside the server.
func TestFlowerModelsCrossOnce(t *testing.T) {
	t.Parallel()
	down := func(beside, n int) (raw, wire float64) {
		nodes := append(atSite(0, "server", 1), atSite(0, "client", beside)...)
		job := nodeJob(t, flowerJoin.environment, "flower_job.py", append(nodes, atSite(1, "client", n)...), "--mode", flowerJoin.mode, "--local", "5")
		_, ps := runNodes(t, fast, job, &testbed.Config{})
		raw, wire = tensors(t, ps[:1], `role="state"`)
		t.Logf("%d clients: %.0f bytes of models became %.0f", n, raw, wire)
		return raw, wire
	}
	rawOne, one := down(1, 1) // the model of one alone would be its own last result, which costs nothing
	rawTwo, two := down(0, 2)
	rawFour, four := down(0, 4)
	if rawTwo < 1.9*rawOne || two > 1.1*one {
		t.Errorf("models for two clients, %.0f bytes, became %.0f; for one, %.0f bytes, %.0f", rawTwo, two, rawOne, one)
	}
	if rawFour < 1.9*rawTwo || four > 1.1*two {
		t.Errorf("models for four clients, %.0f bytes, became %.0f; for two, %.0f bytes, %.0f", rawFour, four, rawTwo, two)
	}
}

// model is the size of the model in bytes.
const model = 4 * (784*64 + 64 + 64*10 + 10)

// flowerAccuracy is that of three rounds, at least.
const flowerAccuracy = 0.7

// A SuperNode of Flower 1.42 gives up a push that is not answered within 30 s of its last byte, and sends it again:
// ahead of a slow link a job need not end where the node's socket, or a proxy, takes more bytes ahead than the link
// carries in that time. Three direct runs of this one ended, 138 to 157 s after they began to train. Through the
// proxies it ends too, and nothing is sent twice. A busy machine may delay an answer for 30 s by itself: then the job
// runs once more. Pushes that are sent again cost nothing on the link.
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
