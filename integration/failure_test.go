//go:build linux

package integration

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// impatient is the job of the tests in which something fails: each of its waits ends after this long.
func impatient(t *testing.T, environment string, args ...string) testbed.Job {
	return torchJob(t, environment, 2, append([]string{"--steps", "200", "--timeout", "20"}, args...)...)
}

// A rank that dies takes its connections with it; the others learn it at once, with proxies and without.
func TestRankKilled(t *testing.T) {
	t.Parallel()
	for _, environment := range []string{"torch113", "torch215"} {
		for _, proxies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/proxies=%v", environment, proxies), func(t *testing.T) {
				job := impatient(t, environment)
				w := newWAN(t, 2, lan)
				if proxies {
					startProxies(t, w, testbed.Config{})
				}
				run := startJob(t, w, job)
				if err := run.Step(deadline(t, time.Minute), 3); err != nil {
					t.Fatal(err)
				}
				run.Ranks[1].Kill()
				wantError(t, run.Ranks[0].Wait())
			})
		}
	}
}

// A proxy that is killed takes only the connections that went through it: both ranks see an error, the host's other
// connections live on, and new connections go directly until the proxy is back.
func TestProxyKilled(t *testing.T) {
	t.Parallel()
	job := impatient(t, "torch113")
	again := torchJob(t, "torch113", 2)
	want := direct(t, again)

	w := newWAN(t, 3, lan) // the third site is nobody's peer
	a, b, stranger := w.Sites[0], w.Sites[1], w.Sites[2]
	bystanders := map[string][2]net.Conn{}
	stand := func(name string, from, to *testbed.Site, addr netip.Addr) {
		client, server := connect(t, from, to, addr)
		bystanders[name] = [2]net.Conn{client, server}
	}
	stand("older than the proxies", a, b, b.Addr)

	pair := testbed.Config{Sites: []int{0, 1}}
	proxies := startProxies(t, w, pair)
	stand("within the host, over loopback", a, a, netip.MustParseAddr("127.0.0.1"))
	stand("within the host, over its own address", a, a, a.Addr)
	stand("to a network that is no peer's", a, stranger, stranger.Addr)
	stand("from a network that is no peer's", stranger, a, a.Addr)

	run := startJob(t, w, job)
	if err := run.Step(deadline(t, time.Minute), 3); err != nil {
		t.Fatal(err)
	}
	proxies[0].Kill()
	killed := time.Now()
	goesDirectly(t, a, b)
	t.Logf("new connections go directly %v after the proxy's death", time.Since(killed).Round(time.Millisecond))
	for name, c := range bystanders {
		if err := pingPong(c[0], c[1]); err != nil {
			t.Errorf("connection %s: %v", name, err)
		}
	}
	for _, result := range run.Wait() {
		wantError(t, result)
	}

	revived, err := program(t).StartOne(w, 0, pair)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := revived.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, p := range []*testbed.Proxy{revived, proxies[1]} {
		if err := p.Ready(deadline(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	sameResults(t, want.results, runJob(t, w, again))
}

// goesDirectly waits until a connection from one site to the other sees the dialer's own address at the far end. The
// rules of a dead proxy expire after 5 s, and the wait for them bounds hanging alone.
func goesDirectly(t *testing.T, from, to *testbed.Site) {
	t.Helper()
	l, err := to.Listen(netip.AddrPortFrom(to.Addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for ctx := deadline(t, time.Minute); ; {
		client, err := from.Dial(ctx, "tcp", l.Addr().String())
		if err == nil {
			defer client.Close()
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("new connections to the peer's network: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if got := netip.MustParseAddrPort(server.RemoteAddr().String()).Addr(); got != from.Addr {
		t.Errorf("the far end sees a connection from %v, want %v: directly", got, from.Addr)
	}
}

// With the far proxy down connections are held for 30 s, then reset; the job gives up when its own patience ends.
func TestFarProxyDown(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWAN(t, 2, lan)
	near, err := program(t).StartOne(w, 1, testbed.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, near)
	refused(t, w.Sites[1], w.Sites[0], w.Sites[0].Addr)
	run := startJob(t, w, impatient(t, "torch215"))
	for _, result := range run.Wait() {
		wantError(t, result)
	}
}

// A far proxy that comes while the job still tries to join: it either joins, and ends with the right weights, or fails.
func TestFarProxyComesLate(t *testing.T) {
	t.Parallel()
	job := torchJob(t, "torch215", 2)
	want := direct(t, job)
	w := newWAN(t, 2, lan)
	near, err := program(t).StartOne(w, 1, testbed.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, near)
	refused(t, w.Sites[1], w.Sites[0], w.Sites[0].Addr)
	job.Some = []int{0, 1} // at once
	run := startJob(t, w, job)
	time.Sleep(5 * time.Second) // to import torch takes 2 or 3 of them
	far, err := program(t).StartOne(w, 0, testbed.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, far)
	got := run.Wait()
	if err := testbed.Failures(got); err != nil {
		t.Logf("the job fails: %v", err)
		for _, result := range got {
			wantError(t, result)
		}
		return
	}
	t.Log("the job joins once the far proxy is there")
	sameResults(t, want.results, got)
}

// Ranks that start before rank 0 listens are refused without proxies, and try again. An interceptor has accepted before
// it knows: it tries again for them, which PyTorch 1 needs, since a reset ends it.
func TestRankZeroStartsLast(t *testing.T) {
	t.Parallel()
	timeout := map[string][]string{"torch113": {"--timeout", "20"}}
	for name, newJob := range map[string]func(t *testing.T, args ...string) testbed.Job{
		"torch113": func(t *testing.T, args ...string) testbed.Job { return torchJob(t, "torch113", 2, args...) },
		"torch215": func(t *testing.T, args ...string) testbed.Job { return torchJob(t, "torch215", 2, args...) },
		"jax":      func(t *testing.T, args ...string) testbed.Job { return jaxJob(t, 2, args...) },
	} {
		t.Run(name, func(t *testing.T) {
			want := direct(t, newJob(t))
			job := newJob(t, timeout[name]...)
			w := newWAN(t, 2, lan)
			proxies := startProxies(t, w, testbed.Config{})
			job.Port = 29500
			job.Some = []int{1}
			late := startJob(t, w, job)
			waitForRefusal(t, proxies[0])
			job.Some = []int{0}
			got := append(startJob(t, w, job).Wait(), late.Wait()...)
			if err := testbed.Failures(got); err != nil {
				t.Fatal(err)
			}
			sameResults(t, want.results, got)
		})
	}
}

// waitForRefusal waits until a server beside the proxy has refused a connection.
func waitForRefusal(t *testing.T, p *testbed.Proxy) {
	t.Helper()
	ctx := deadline(t, time.Minute)
	for {
		samples, err := p.Metrics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if testbed.Sum(samples, "gradproxy_dials_refused_total") > 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func stopAfter(t *testing.T, p *testbed.Proxy) {
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// wantError fails the test unless the rank ended with an error of its own: not by the harness's patience, and without
// weights that somebody could take for good.
func wantError(t *testing.T, r testbed.Result) {
	t.Helper()
	switch {
	case r.ExitCode == 0 || r.WeightsSHA256 != "":
		t.Errorf("rank %d ends with exit code %d and weights %.8s, want an error and none", r.Rank, r.ExitCode, r.WeightsSHA256)
	case r.Killed != nil:
		t.Errorf("rank %d hung until it was killed after %v:\n%s", r.Rank, r.Wall, r.Stderr)
	default:
		t.Logf("rank %d sees, after %.1f s: %s", r.Rank, r.Wall.Seconds(), lastLine(r.Stderr))
	}
}

func lastLine(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	return last
}
