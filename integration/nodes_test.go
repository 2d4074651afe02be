//go:build linux

package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// nodeJob returns a job whose processes have roles (testdata/nodes.py), or skips the test.
func nodeJob(t *testing.T, environment, program string, nodes []testbed.Node, args ...string) testbed.Job {
	t.Helper()
	job := newJob(t, environment, program, 0, nil)
	job.Nodes, job.Args = nodes, args
	return job
}

// atSite returns n processes of a role at a site.
func atSite(site int, role string, n int) []testbed.Node {
	return slices.Repeat([]testbed.Node{{Role: role, Site: site}}, n)
}

// runNodes runs job between two sites with link between them, through the proxies of c if there are any, and returns
// the results of the processes that train.
func runNodes(t *testing.T, link wansim.Link, job testbed.Job, c *testbed.Config) (l leg, ps testbed.Proxies) {
	t.Helper()
	return runNodesOn(t, newWAN(t, 2, link), job, c)
}

// runNodesOn is runNodes over a WAN that exists.
func runNodesOn(t *testing.T, w *testbed.WAN, job testbed.Job, c *testbed.Config) (l leg, ps testbed.Proxies) {
	t.Helper()
	if c != nil {
		ps = startProxies(t, w, *c)
	}
	before := w.LinkBytes()
	results, err := w.Run(deadline(t, 2*patience), ending(t, job))
	if err != nil {
		t.Fatal(err)
	}
	l.bytes = w.LinkBytes() - before
	for _, r := range results {
		if r.WeightsSHA256 != "" {
			l.results = append(l.results, r)
		}
	}
	if len(l.results) == 0 {
		t.Fatal("no process has trained")
	}
	report(t, l)
	if n := sum(t, ps, "gradproxy_parsers_gave_up_total"); n != 0 {
		t.Errorf("%.0f directions of connections stopped being understood", n)
	}
	return l, ps
}

// ending returns job with a file of its own, by which its processes end.
func ending(t *testing.T, job testbed.Job) testbed.Job {
	t.Helper()
	job.Args = append(slices.Clone(job.Args), "--end", filepath.Join(t.TempDir(), "end"))
	return job
}

// directNodes returns the results of job without proxies. Jobs that end with the same weights share one direct run, by
// key.
func directNodes(t *testing.T, key string, job testbed.Job) leg {
	t.Helper()
	return sharedDirect(t, key, func(t *testing.T) leg {
		l, _ := runNodes(t, fast, job, nil)
		return l
	})
}

// tensors returns how many bytes of tensors of a role the job has sent, and the bytes that they took in the tunnel.
func tensors(t *testing.T, ps testbed.Proxies, labels ...string) (raw, wire float64) {
	t.Helper()
	return sum(t, ps, "gradproxy_raw_bytes_total", labels...), sum(t, ps, "gradproxy_wire_bytes_total", labels...)
}

// byRole logs the bytes of tensors, by role.
func byRole(t *testing.T, ps testbed.Proxies) {
	t.Helper()
	for _, role := range []string{"gradient", "aggregate", "state", "exact", "unknown"} {
		if raw, wire := tensors(t, ps, fmt.Sprintf("role=%q", role)); raw > 0 {
			t.Logf("%s: %.0f bytes became %.0f", role, raw, wire)
		}
	}
}
