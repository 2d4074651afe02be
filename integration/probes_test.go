//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// wantRightsApart fails the test unless the proxy, which parses bytes, has no capability, and processes of their own
// have the ones of rules and of probes.
func wantRightsApart(t *testing.T, p *testbed.Proxy) {
	t.Helper()
	child := func(says string) map[string]uint64 {
		found := regexp.MustCompile(says + `" pid=([0-9]+)`).FindStringSubmatch(p.Log())
		if found == nil {
			t.Fatalf("the log does not say that %s:\n%s", says, p.Log())
		}
		return confined(t, found[1])
	}
	const netAdmin, bpf, ptrace = 1 << 12, 1 << 39, 1 << 19
	proxy, warden, prober := confined(t, strconv.Itoa(p.Pid())), child("rights are kept by a process of its own"), child("jobs are probed by a process of its own")
	if proxy["CapEff"] != 0 || proxy["CapPrm"] != 0 || proxy["NoNewPrivs"] != 1 {
		t.Errorf("the process that parses bytes: %v, want no capability, and no_new_privs", proxy)
	}
	if warden["PPid"] != uint64(p.Pid()) || warden["CapEff"] != netAdmin || warden["CapPrm"] != netAdmin || warden["NoNewPrivs"] != 1 {
		t.Errorf("the process that keeps rights: %v, want a child of %d with CAP_NET_ADMIN only, and no_new_privs", warden, p.Pid())
	}
	if prober["PPid"] != uint64(p.Pid()) || prober["CapEff"]&(bpf|ptrace) != bpf|ptrace || prober["CapEff"]&netAdmin != 0 {
		t.Errorf("the process that probes: %v, want a child of %d with the rights of probes and no others", prober, p.Pid())
	}
}

// confined waits until a process has the last of its walls, and returns its status.
func confined(t *testing.T, pid string) map[string]uint64 {
	t.Helper()
	for {
		if status := statusOf(t, pid); status["Seccomp"] == 2 || t.Context().Err() != nil {
			return status
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// statusOf returns fields of /proc/PID/status. Fields of capabilities are hexadecimal numbers, the others decimal.
func statusOf(t *testing.T, pid string) map[string]uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		base := 10
		if strings.HasPrefix(name, "Cap") {
			base = 16
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(value), base, 64); err == nil {
			fields[name] = n
		}
	}
	return fields
}

// Each release's calls are seen: buckets of gradients, and after each step a sum of something else.
func TestProbedCalls(t *testing.T) {
	const steps = 12
	require.Named(t, "bpf", bpf.Permitted() == nil, "run the tests with all capabilities")
	for _, environment := range []string{"torch113", "torch215"} {
		t.Run(environment, func(t *testing.T) {
			w := newWAN(t, 2, fast)
			ps := startProxies(t, w, testbed.Way(gradientCodec).Config())
			for _, p := range ps {
				wantRightsApart(t, p)
			}
			results := runProbedJob(t, deadline(t, patience), w, ps, torchJob(t, environment, 2, "--steps", "12", "--hidden", "512", "--metric"))
			count := func(metric string) float64 {
				n, err := ps.Sum(deadline(t, time.Minute), metric)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			for count("gradproxy_probe_processes") > 0 { // until the calls of the last second are counted
				if t.Context().Err() != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			calls, buckets := count("gradproxy_probe_calls_total"), count("gradproxy_probe_buckets_total")
			t.Logf("torch %s: %.0f of %.0f calls are buckets", results[0].Version, buckets, calls)
			if minimum := float64(2 * steps); buckets < minimum || calls-buckets < minimum {
				t.Errorf("%.0f of %.0f calls are buckets, want at least %.0f and as many others", buckets, calls, minimum)
			}
			for _, metric := range []string{"gradproxy_probe_contradictions_total", "gradproxy_probe_failures_total"} {
				if n := count(metric); n > 0 {
					t.Errorf("%s is %.0f", metric, n)
				}
			}
		})
	}
}
