//go:build linux

package integration

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/bpf/cgroup"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// newExec has the program run jobs across w.
func newExec(t *testing.T, w *testbed.WAN, c testbed.Config) *testbed.Exec {
	t.Helper()
	g, err := cgroup.New("probe")
	require.Named(t, "cgroup2", err == nil, "use a kernel with cgroups of version 2")
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	require.Named(t, "bpf", bpf.Permitted() == nil, "run the tests with all capabilities")
	e, err := program(t).Exec(w, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// wantOnlyRemote fails the test unless connections of the job were taken at each site, and none of the site to itself.
func wantOnlyRemote(t *testing.T, w *testbed.WAN, e *testbed.Exec) {
	t.Helper()
	var all int
	for i, site := range w.Sites {
		taken, err := e.Taken(i)
		if err != nil {
			t.Fatal(err)
		}
		all += len(taken)
		for _, c := range taken {
			if c.Client.Addr() != site.Addr && c.Client.Addr() != site.Addr6 {
				t.Errorf("site %s: a connection's client is %v, which is not the site's address %v", site.Site, c.Client, site.Addr)
			}
			if site.Network.Contains(c.Server.Addr()) || site.Network6.Contains(c.Server.Addr()) || c.Server.Addr().IsLoopback() {
				t.Errorf("site %s: a connection to %v is the host's to itself, and was taken", site.Site, c.Server)
			}
		}
	}
	if all == 0 {
		t.Error("no connection was taken: the job ran directly")
	}
}

// A command whose proxy is killed lives on. Its connections are reset; its new ones go directly, or are refused;
// connections of other programs go directly.
func TestExecKilled(t *testing.T) {
	const client = `
import socket, sys
kept = None
for line in sys.stdin:
    if line.split() == ["end"]:  # of the connection that was kept
        try:
            print("FIN" if kept.recv(1) == b"" else "bytes", flush=True)
        except OSError as e:
            print(type(e).__name__, flush=True)
        continue
    host, port = line.split()
    if kept is None:
        kept = socket.create_connection((host, int(port)), timeout=30)
        print(kept.recv(100).decode(), flush=True)
        continue
    try:
        print(socket.create_connection((host, int(port)), timeout=30).recv(100).decode(), flush=True)
    except OSError as e:
        print(type(e).__name__, flush=True)
`
	require.Command(t, "python3")
	t.Parallel()
	for onDeath, want := range map[string]func(*testbed.Site) string{
		"direct": func(own *testbed.Site) string { return own.Addr.String() },
		"refuse": func(*testbed.Site) string { return "ConnectionRefusedError" },
	} {
		t.Run(onDeath, func(t *testing.T) {
			w := newWAN(t, 2, lan)
			from, to := w.Sites[0], w.Sites[1]
			c := testbed.Config{OnDeath: onDeath}
			e := newExec(t, w, c)
			far, err := program(t).StartOne(w, 1, c)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := far.Stop(); err != nil {
					t.Error(err)
				}
			})
			l, err := to.Listen(netip.AddrPortFrom(to.Addr, 0).String())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() { // tells each client its address, and keeps the first one's connection
				for first := true; ; {
					c, err := l.Accept()
					if err != nil {
						return
					}
					host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
					io.WriteString(c, host)
					if first {
						defer c.Close()
						first = false
						continue
					}
					c.Close()
				}
			}()
			command, err := e.Start(deadline(t, patience), 0, "python3", "-c", client)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := command.End(); err != nil {
					t.Error(err)
				}
				newExec(t, w, c) // the next start in the same cgroup removes the hooks that the killed proxy left
			}()
			server := strings.Replace(l.Addr().String(), ":", " ", 1)
			ask := func(state, want string) {
				t.Helper()
				if got, err := command.Ask(server); err != nil || got != want {
					t.Errorf("%s: the server sees %q, want %q (%v)", state, got, want, err)
				}
			}
			ask("alive", to.Addr.String()) // the far proxy
			ask("alive still", to.Addr.String())
			command.Kill()
			if got, err := command.Ask("end"); err != nil || got != "ConnectionResetError" {
				t.Errorf("the connection that the killed proxy carried ends by %q, want a reset (%v)", got, err)
			}
			ask("killed", want(from))
		})
	}
}

// A job of torchrun, run by exec at two sites, ends with the direct run's weights, for fewer bytes.
func TestTorchrunByExec(t *testing.T) {
	t.Parallel()
	job := torchJob(t, "torch215", 2) // the agent of Debian's 1.13.1 does not work with its Python
	want := direct(t, job)
	w := newWAN(t, job.Ranks, lan)
	job.Exec, job.Agents = newExec(t, w, testbed.Config{}), true
	got := leg{results: runJob(t, w, job), bytes: w.LinkBytes()}
	report(t, got)
	sameResults(t, want.results, got.results)
	if got.bytes >= want.bytes {
		t.Errorf("%d bytes on the WAN, want fewer than the %d of a direct run", got.bytes, want.bytes)
	}
	wantOnlyRemote(t, w, job.Exec)
}

// The calls of a job prove its gradients also where exec runs it, and where mode: cgroup takes its connections: all
// gradients lose something, and nothing else.
func TestProvedByExecAndCgroup(t *testing.T) {
	config := testbed.Way("3lc+int4").Config()
	config.Loss.Sums = "proved"
	t.Run("exec", func(t *testing.T) {
		job := variantsJob(t, "torch215", "plain", "--pause", "0.5")
		w := newWAN(t, job.Ranks, fast)
		job.Exec = newExec(t, w, config)
		job.Exec.Samples = true
		results := runJob(t, w, job)
		wantSumsExact(t, results)
		samples, err := job.Exec.Metrics()
		if err != nil {
			t.Fatal(err)
		}
		wantProvedBy(t, samples, config, results)
		wantOnlyRemote(t, w, job.Exec)
	})
	t.Run("cgroup", func(t *testing.T) {
		job := variantsJob(t, "torch113", "plain", "--pause", "0.5")
		w := newWAN(t, job.Ranks, fast)
		groups, err := testbed.NewCgroups(job.Ranks)
		require.Named(t, "cgroup2", err == nil, "use a kernel with cgroups of version 2")
		require.Named(t, "bpf", bpf.Permitted() == nil, "run the tests with all capabilities")
		t.Cleanup(func() { // after the proxies have ended
			if err := groups.Close(); err != nil {
				t.Error(err)
			}
		})
		config := config
		job.Under = groups.Under()
		config.Cgroup = groups.Folder()
		ps := startProxies(t, w, config)
		results := runProbedJob(t, deadline(t, patience), w, ps, job)
		wantSumsExact(t, results)
		wantProved(t, deadline(t, time.Minute), ps, config, results)
	})
}

// Parameter servers talk to the workers of their own host as well, and of that nothing is taken.
func TestMXNetByExec(t *testing.T) {
	t.Parallel()
	want, _ := directMXNet(t, mxnetSync)
	w := newWAN(t, 2, fast)
	job := mxnetSync.job(t)
	job.Exec = newExec(t, w, testbed.Config{})
	got, _ := runMXNetOn(t, w, job, nil)
	sameResults(t, want.results, got.results)
	if got.bytes >= want.bytes {
		t.Errorf("%d bytes on the WAN, want fewer than the %d of a direct run", got.bytes, want.bytes)
	}
	wantOnlyRemote(t, w, job.Exec)
}
