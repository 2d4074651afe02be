package site

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Prometheus' own tool finds nothing to object to in the metrics of a running proxy: names, units, types and help.
func TestMetricsKeepConventions(t *testing.T) {
	_, promtool := require.Prometheus(t)
	lab := newLab(t)
	const lossy = "jobs: [{name: resnet, networks: [127.0.0.0/16]}]\npolicy: [{role: gradient, codec: 3lc}, {role: state, codec: int8}]\n"
	r := lab.run(lab.load(0, "state: {dir: "+t.TempDir()+"}\n"+lossy))
	status, metrics := r.get("/metrics")
	if status != 200 || strings.Count(metrics, "\n# TYPE gradproxy_") < 40 {
		t.Fatalf("%d: %d families", status, strings.Count(metrics, "\n# TYPE gradproxy_"))
	}
	t.Setenv("GODEBUG", "") // promtool is a Go program of its own, and would say which settings it does not know
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(metrics)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	check = exec.Command(promtool, "check", "metrics") // it sees a mistake
	check.Stdin = strings.NewReader(strings.Replace(metrics, "# TYPE gradproxy_peer_outages_total counter", "# TYPE gradproxy_peer_outages_total gauge", 1))
	if out, err := check.CombinedOutput(); err == nil {
		t.Errorf("promtool takes a gauge for a counter: %s", out)
	}
}
