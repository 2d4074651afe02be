//go:build linux

package integration

import (
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// Over carriers of datagrams, or chosen ones, a job ends with the direct run's weights, though the WAN loses packets
// and is a black hole for a while.
func TestJobOverDatagrams(t *testing.T) {
	t.Parallel()
	job := torchJob(t, "torch113", 2, "--steps", "12", "--hidden", "256", "--timeout", "120")
	want := direct(t, job).results
	for _, carrier := range []string{tunnel.CarrierDTLS, tunnel.CarrierAuto} {
		t.Run(carrier, func(t *testing.T) {
			t.Parallel()
			overDatagrams(t, job, carrier, 0, want)
		})
	}
}

// The same of a job on MXNet's parameter server.
func TestMXNetOverDatagrams(t *testing.T) {
	t.Parallel()
	job := mxnetMode{twoWorkers, []string{"--steps", "24"}, nil}
	want, _ := directMXNet(t, job)
	overDatagrams(t, job.job(t), tunnel.CarrierDTLS, 3, want.results)
}

// overDatagrams runs a job over a carrier, on a link that loses packets and is a black hole once the ranks from first
// on have made three steps.
func overDatagrams(t *testing.T, job testbed.Job, carrier string, first int, want []testbed.Result) {
	t.Helper()
	w := newWAN(t, 2, wansim.Link{Rate: 50e6 / 8, Delay: 10 * time.Millisecond, Loss: 0.01, Queue: 1 << 20, Seed: 1})
	startProxies(t, w, testbed.Config{Carrier: carrier, Congestion: "cubic"})
	run := startJob(t, w, job)
	for _, r := range run.Ranks[first:] {
		if err := r.Step(deadline(t, 2*time.Minute), 3); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Outage(t.Context(), 3*time.Second); err != nil {
		t.Fatal(err)
	}
	results := run.Wait()
	if err := testbed.Failures(results); err != nil {
		t.Fatal(err)
	}
	got := workers(results)
	sameResults(t, want, got)
	report(t, leg{results: got, bytes: w.LinkBytes()})
}

// workers returns the results of the ranks that train: all of a job without roles.
func workers(results []testbed.Result) (all []testbed.Result) {
	for _, r := range results {
		if r.Role == "" || r.Role == testbed.Worker {
			all = append(all, r)
		}
	}
	return all
}

// Real jobs end with the direct run's weights though the carrier under them changes: TLS is cut in mid-run, so that
// datagrams carry everything, the host of a site then gets another address, datagrams are cut, TLS returns, and the WAN
// is a black hole for a while. The link loses 1 % of its packets.
func TestJobsWhileCarriersChange(t *testing.T) {
	t.Parallel()
	torch := torchJob(t, "torch113", 2, "--steps", "24", "--hidden", "256", "--timeout", "300")
	mxnet := mxnetMode{twoWorkers, []string{"--steps", "24"}, nil}
	for name, c := range map[string]struct {
		job   testbed.Job
		first int // of the ranks that count steps
		want  func() []testbed.Result
	}{
		"torch": {torch, 0, func() []testbed.Result { return direct(t, torch).results }},
		"mxnet": {mxnet.job(t), 3, func() []testbed.Result { l, _ := directMXNet(t, mxnet); return l.results }},
	} {
		want := c.want()
		t.Run(name, func(t *testing.T) {
			t.Parallel() // beside the other job: both wait most of the time
			w := newWAN(t, 2, wansim.Link{Rate: 50e6 / 8, Delay: 10 * time.Millisecond, Loss: 0.01, Queue: 1 << 20, Seed: 1})
			ps := startProxies(t, w, testbed.Config{Carrier: tunnel.CarrierAuto, Congestion: "cubic"})
			run, err := w.Start(deadline(t, 2*patience+*outage), c.job)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(run.Kill)
			step := func(k int) {
				t.Helper()
				for _, r := range run.Ranks[c.first:] {
					if err := r.Step(deadline(t, 2*time.Minute), k); err != nil {
						t.Fatal(err)
					}
				}
			}
			step(2)
			lift := filter(t, w.Sites[0], noTCP)
			awaitChoice(t, ps, tunnel.CarrierDTLS, "only", time.Minute)
			step(5)
			moveTo(t, w, "198.18.1.77")
			step(8)
			lift()
			lift = filter(t, w.Sites[0], noUDP)
			awaitChoice(t, ps, tunnel.CarrierTLS, "blocked", time.Minute)
			step(12)
			lift()
			if err := w.Outage(t.Context(), *outage); err != nil {
				t.Fatal(err)
			}
			results := run.Wait()
			if err := testbed.Failures(results); err != nil {
				t.Fatal(err)
			}
			got := workers(results)
			sameResults(t, want, got)
			report(t, leg{results: got, bytes: w.LinkBytes()})
		})
	}
}

// moveTo gives the host of the first site another address towards the second one, and has nothing more leave from the
// old one by UDP.
func moveTo(t *testing.T, w *testbed.WAN, address string) {
	t.Helper()
	a, b := w.Sites[0], w.Sites[1]
	for _, args := range [][]string{
		{"ip", "address", "add", address + "/32", "dev", a.Interface},
		{"ip", "route", "replace", b.Network.String(), "dev", a.Interface, "src", address},
		{"nft", "table inet old { chain c { type filter hook output priority 0; ip saddr " + a.Addr.String() + " udp dport 7443 drop; ip saddr " + a.Addr.String() + " udp sport 7443 drop; }; }"},
	} {
		if out, err := a.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}
