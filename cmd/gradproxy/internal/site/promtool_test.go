package site

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/integration/require"
)

// Prometheus' own tool finds nothing to object to in the metrics of a running proxy: names, units, types and help.
func TestMetricsKeepConventions(t *testing.T) {
	_, promtool := require.Prometheus(t)
	lab := newLab(t)
	const lossy = "shadow: [int4]\njobs: [{name: resnet, networks: [127.0.0.0/16], budget: {gb_per_day: 1, then: [int8]}}]\npolicy: [{role: gradient, codec: 3lc}, {role: state, codec: int8}]\n"
	c := lab.load(0, "state: {dir: "+t.TempDir()+"}\n"+lossy)
	c.Peers[0].Price = config.Price{EgressPerGB: 0.09, Currency: "USD"}
	r := lab.run(c)
	status, metrics := r.get("/metrics")
	if status != 200 || strings.Count(metrics, "\n# TYPE gradproxy_") < 40 {
		t.Fatalf("%d: %d families", status, strings.Count(metrics, "\n# TYPE gradproxy_"))
	}
	for _, family := range []string{"shadow_core_seconds_total", "shadow_values_total", "budget_used_bytes", "budget_projected_bytes", "peer_egress_spent_total", "peer_egress_saved"} {
		if !strings.Contains(metrics, "\n# TYPE gradproxy_"+family+" ") {
			t.Errorf("no family %s", family)
		}
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
