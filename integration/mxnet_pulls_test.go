//go:build linux

package integration

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// pulls are the weights that n workers behind the WAN have got from the servers.
type pulls struct {
	leg
	raw, wire    float64 // bytes, as the workers got them and as they went into the tunnel
	fresh, again float64 // values that were put at the peer, and how often one was referred to again
}

const pullSteps = 30

// pull runs the job of n workers behind the WAN. The weights after a step do not depend on n.
func pull(t *testing.T, n int, rate float64, c testbed.Config) pulls {
	t.Helper()
	nodes := []testbed.Node{{Role: testbed.Scheduler}, {Role: testbed.Server}, {Role: testbed.Server}}
	nodes = append(nodes, slices.Repeat([]testbed.Node{{Role: testbed.Worker, Site: 1}}, n)...)
	job := mxnetMode{nodes: nodes, args: []string{"--grid", "16"}}.job(t, "--steps", fmt.Sprint(pullSteps),
		"--batch", fmt.Sprint(128/n), "--lr", fmt.Sprint(rate/float64(n)))
	l, ps := runMXNet(t, lan, job, &c)
	state, how := `role="state"`, "gradproxy_shared_values_total"
	p := pulls{
		leg:   l,
		raw:   sum(t, ps, "gradproxy_raw_bytes_total", state),
		wire:  sum(t, ps, "gradproxy_wire_bytes_total", state),
		fresh: sum(t, ps, how, `how="whole"`) + sum(t, ps, how, `how="difference"`),
		again: sum(t, ps, how, `how="again"`),
	}
	t.Logf("%d workers got %.0f bytes of weights for %.0f: %.0f values, %.0f times one again", n, p.raw, p.wire, p.fresh, p.again)
	// The link is slow enough that coding always pays, so that none travel verbatim, however busy the machine.
	if want := float64(n * pullSteps * l.results[0].DenseBytes); p.raw < want {
		t.Fatalf("%.0f bytes of weights, want %.0f", p.raw, want)
	}
	return p
}

// Weights that come back are coded as differences, and the copies of four workers cost as much as the copy of one.
func TestMXNetPullsCostOnce(t *testing.T) {
	t.Parallel()
	const rate = 0.01
	var without, four, one pulls
	t.Run("references=0", func(t *testing.T) { without = pull(t, 4, rate, testbed.Config{References: "0"}) })
	t.Run("four workers", func(t *testing.T) { four = pull(t, 4, rate, testbed.Config{}) })
	t.Run("one worker", func(t *testing.T) { one = pull(t, 1, rate, testbed.Config{}) })
	if without.results == nil || four.results == nil || one.results == nil {
		return // they say why
	}
	sameResults(t, without.results, four.results)
	if r := one.wire / one.raw; r > 0.85*without.wire/without.raw {
		t.Errorf("differences take %.3f of the weights, and the weights themselves, coded, %.3f", r, without.wire/without.raw)
	}
	// The first weights are sent before the proxies have agreed to share anything.
	first := 4 * float64(one.results[0].DenseBytes)
	if four.wire > 1.05*one.wire+first {
		t.Errorf("%.0f bytes for four workers, want what one costs, %.0f", four.wire, one.wire)
	}
	if four.again < 2.8*four.fresh {
		t.Errorf("%.0f values were sent, and one again %.0f times, want three times as often", four.fresh, four.again)
	}
}

// Pushes lose something with feedback, and pulls in a closed loop, so that the workers' copies stay the same.
func TestMXNetWithLossBothWays(t *testing.T) {
	t.Parallel()
	loss := mxnetLoss
	loss.State = gradientCodec
	p := pull(t, 4, 0.08, testbed.Config{Loss: loss})
	wantReplicasEqual(t, p.results)
	wantLearned(t, p.results)
	if p.wire*50 > p.raw {
		t.Errorf("%.0f bytes for %.0f of weights, want a fiftieth", p.wire, p.raw)
	}
}

// With dist_async each worker pulls the weights of another moment, and two workers behind the WAN that pull the same
// ones may get different bits. At the end each of them is near the servers' weights, which a worker beside the servers
// gets exactly. Each further pull of the same weights brings it nearer, until all workers have them.
func TestMXNetAsyncPullsComeNear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pulls   int
		farther float64 // maximum norm of the difference to the servers' weights, over the norm of these
	}{{1, 0.005}, {16, 0}} {
		t.Run(fmt.Sprintf("%d pulls", c.pulls), func(t *testing.T) {
			folder := t.TempDir()
			nodes := []testbed.Node{{Role: testbed.Scheduler}, {Role: testbed.Server}, {Role: testbed.Server}, {Role: testbed.Worker},
				{Role: testbed.Worker, Site: 1}, {Role: testbed.Worker, Site: 1}}
			job := mxnetMode{nodes: nodes, args: []string{"--kvstore", "dist_async"}}.job(t, "--steps", fmt.Sprint(pullSteps),
				"--pulls", fmt.Sprint(c.pulls), "--save", folder)
			l, ps := runMXNet(t, fast, job, &testbed.Config{Loss: testbed.Loss{Protocol: "pslite", Gradients: "int4", State: "int4"}})
			weights := savedWeights(t, folder, l.results)
			apart := distance(weights[1], weights[2])
			for i, w := range weights[1:] {
				d := distance(weights[0], w)
				t.Logf("worker %d behind the WAN is %.2g from the servers' weights, and %.2g from the other one", i, d, apart)
				if d > c.farther {
					t.Errorf("worker %d is %.2g from the servers' weights, want %.2g at most", i, d, c.farther)
				}
			}
			if n := sum(t, ps, "gradproxy_wire_bytes_total", `role="state"`, `codec="int4"`); n == 0 {
				t.Error("no weights lost anything: the test shows nothing")
			}
			wantLearned(t, l.results)
		})
	}
}

// savedWeights reads the weights that the workers have saved, in the order of results.
func savedWeights(t *testing.T, folder string, results []testbed.Result) (all [][]float32) {
	t.Helper()
	byHash := map[string][]float32{}
	for rank := range results { // as ps-lite numbers them, which says nothing of their sites
		b, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("%d.weights", rank)))
		if err != nil {
			t.Fatal(err)
		}
		w := make([]float32, len(b)/4)
		for i := range w {
			w[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		hash := sha256.Sum256(b)
		byHash[hex.EncodeToString(hash[:])] = w
	}
	for _, r := range results {
		w, ok := byHash[r.WeightsSHA256]
		if !ok {
			t.Fatalf("rank %d saved other weights than it reports", r.Rank)
		}
		all = append(all, w)
	}
	return all
}

// distance returns the norm of the difference of two arrays over the norm of the first.
func distance(a, b []float32) float64 {
	var difference, norm float64
	for i, x := range a {
		difference += math.Pow(float64(x)-float64(b[i]), 2)
		norm += math.Pow(float64(x), 2)
	}
	return math.Sqrt(difference / norm)
}

// Weights that jump run away from a codec that drops most of their differences, so that the replica behind the WAN
// drifts. From the next step on all weights of the job travel exactly: that worker has the bits of the worker beside
// the server, and the drift is counted and said.
func TestMXNetThatDriftsGoesBackToExact(t *testing.T) {
	t.Parallel()
	const steps, spike = 60, 40
	folder := t.TempDir()
	nodes := []testbed.Node{{Role: testbed.Scheduler}, {Role: testbed.Server}, {Role: testbed.Worker}, {Role: testbed.Worker, Site: 1}}
	job := mxnetMode{nodes: nodes}.job(t, "--steps", fmt.Sprint(steps), "--spike", fmt.Sprint(spike), "--alike", folder)
	_, ps := runMXNet(t, lan, job, &testbed.Config{Loss: testbed.Loss{Protocol: "pslite", Gradients: "lossless", State: "3lc(s=1.75)"}})
	differ := make([]int, steps) // arrays of which the two workers have other bits, by step
	for _, name := range readNotes(t, folder, 2).different {
		var step, key int
		if n, _ := fmt.Sscanf(name, "%d.%d", &step, &key); n == 2 {
			differ[step]++
		}
	}
	t.Logf("arrays that differ, by step: %v", differ)
	if slices.Contains(differ[8:spike+1], 0) {
		t.Error("weights travel exactly before the drift")
	}
	for step := spike + 1; step < spike+16; step++ {
		if differ[step] != 0 {
			t.Errorf("%d arrays differ %d steps after the weights have jumped", differ[step], step-spike)
		}
	}
	if n := sum(t, ps, "gradproxy_jobs_drifted_total"); n != 1 {
		t.Errorf("%.0f drifts are counted, want 1", n)
	}
	if log := ps[0].Log() + ps[1].Log(); strings.Count(log, "drift") != 1 {
		t.Errorf("the logs do not say once that the job drifts:\n%s", log)
	}
}
