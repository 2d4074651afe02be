//go:build linux

package integration

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// upgraded runs a job whose proxies are replaced three times in its midst, one after the other, and returns its
// results.
func upgraded(t *testing.T, w *testbed.WAN, job testbed.Job, steps ...int) []testbed.Result {
	t.Helper()
	c := testbed.Config{Upgrades: true}
	return through(t, w, startProxies(t, w, c), c, job, steps, func() {})
}

// through runs a job, replaces a proxy once all workers have done each of the steps, calls amid after the first time,
// and returns the workers' results.
func through(t *testing.T, w *testbed.WAN, ps testbed.Proxies, c testbed.Config, job testbed.Job, steps []int, amid func()) []testbed.Result {
	t.Helper()
	run := startJob(t, w, job)
	for i, step := range steps {
		for j, rank := range run.Ranks {
			if job.Nodes != nil && job.Nodes[j].Role != testbed.Worker {
				continue // it makes no steps
			}
			if err := rank.Step(deadline(t, 2*time.Minute), step); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := program(t).Replace(deadline(t, time.Minute), w, ps, i%len(ps), c); err != nil {
			t.Fatal(err)
		}
		t.Logf("upgrade %d at step %d, site %d: %.2f s until the new process was ready", i+1, step, i%len(ps), time.Since(began).Seconds())
		if i == 0 {
			amid()
		}
	}
	all := run.Wait()
	if err := testbed.Failures(all); err != nil {
		t.Fatal(err)
	}
	var got []testbed.Result
	for _, r := range all {
		if job.Nodes == nil || r.Role == testbed.Worker {
			got = append(got, r)
		}
	}
	return got
}

// A job of DistributedDataParallel goes through three upgrades of its proxies, and ends with the direct run's weights.
func TestDDPSurvivesUpgrades(t *testing.T) {
	t.Parallel()
	want := direct(t, torchJob(t, "torch215", 2))
	got := upgraded(t, newWAN(t, 2, lan), torchJob(t, "torch215", 2, "--timeout", "120", "--sleep", "0.3"), 2, 4, 6)
	sameResults(t, want.results, got)
}

// So does a job of MXNet, whose connections would be lost without a word.
func TestMXNetSurvivesUpgrades(t *testing.T) {
	t.Parallel()
	want, _ := directMXNet(t, long)
	got := upgraded(t, newWAN(t, 2, fast), long.job(t), 4, 9, 14)
	sameResults(t, want.results, got)
}

// TestJobsSurviveAll has a job of DistributedDataParallel and one of MXNet go through upgrades of both proxies, an
// outage of the WAN, and the attacks of a third peer with a right certificate, all at once: both end with the direct
// run's weights. The outage lasts for the flag --outage.
func TestJobsSurviveAll(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]struct {
		want  func(t *testing.T) leg
		job   func(t *testing.T) testbed.Job
		steps []int // before each upgrade
	}{
		"ddp": {func(t *testing.T) leg { return direct(t, torchJob(t, "torch215", 2)) },
			func(t *testing.T) testbed.Job {
				return torchJob(t, "torch215", 2, "--timeout", "170", "--sleep", "0.3")
			}, []int{2, 4, 6}},
		"mxnet": {func(t *testing.T) leg { want, _ := directMXNet(t, long); return want }, func(t *testing.T) testbed.Job { return long.job(t) }, []int{4, 9, 14}},
	} {
		want := run.want(t)
		t.Run(name, func(t *testing.T) {
			t.Parallel() // beside the other job: both wait most of the time
			w := newWAN(t, 3, lan)
			c := testbed.Config{Sites: []int{0, 1}, Hostile: []int{2}, Upgrades: true, OnDeath: "hold"}
			h, err := program(t).Attack(w, 2, c, sinks(t, w, 0, 1))
			if err != nil {
				t.Fatal(err)
			}
			defer h.Stop()
			ps := startProxies(t, w, c)
			got := through(t, w, ps, c, run.job(t), run.steps, func() {
				if err := w.Outage(t.Context(), *outage); err != nil {
					t.Fatal(err)
				}
			})
			if err := h.Stop(); err != nil {
				t.Error(err)
			}
			t.Logf("beside %d denied openings, %d resets, %d values and %d blocks of 16 MiB of zeros, %d silent handshakes",
				h.Denied.Load(), h.Reset.Load(), h.Values.Load(), h.Blocks.Load(), h.Silent.Load())
			for attack, n := range map[string]int64{"denied openings": h.Denied.Load(), "resets": h.Reset.Load(), "values": h.Values.Load(), "blocks": h.Blocks.Load(),
				"silent handshakes": h.Silent.Load()} {
				if n == 0 {
					t.Errorf("no %s have reached a proxy: the test shows nothing of them", attack)
				}
			}
			sameResults(t, want.results, got)
		})
	}
}

// long is a job of MXNet that lasts for some seconds.
var long = mxnetMode{twoWorkers, []string{"--steps", "24", "--sleep", "0.2"}, nil}

// sinks starts a server at each of some sites that takes bytes and keeps none.
func sinks(t *testing.T, w *testbed.WAN, sites ...int) map[int]netip.AddrPort {
	all := map[int]netip.AddrPort{}
	for _, i := range sites {
		l, err := w.Sites[i].Listen(netip.AddrPortFrom(w.Sites[i].Addr, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go swallow(c.(*net.TCPConn))
			}
		}()
		all[i] = netip.MustParseAddrPort(l.Addr().String())
	}
	return all
}

// swallow takes all that a connection has and closes it. The kernel copies none of it (tcp(7), MSG_TRUNC): the attack
// sends gigabytes.
func swallow(c *net.TCPConn) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	place := make([]byte, 1<<20) // how much is taken at once
	for n := 1; n > 0 && err == nil; {
		var failed error
		err = raw.Read(func(fd uintptr) bool {
			n, _, failed = syscall.Recvfrom(int(fd), place, syscall.MSG_TRUNC)
			return failed != syscall.EAGAIN
		})
		err = errors.Join(err, failed)
	}
}
