package site

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// The metrics of docs/operations.md whose rise is worth an alert are there before the first event, with the labels of
// each peer: a rise from no series at all is none.
func TestAlertsSeeTheFirstEvent(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\nWorth an alert:\n")
	if table, _, _ = strings.Cut(table, "\n## "); !found {
		t.Fatal("docs/operations.md has no table of alerts")
	}
	lab := newLab(t)
	r := lab.run(lab.load(0, fmt.Sprintf("state: {dir: %s}\n", t.TempDir())))
	_, metrics := r.get("/metrics")
	for _, series := range []string{`gradproxy_sessions_lost_total{peer="tokyo"} 0`, `gradproxy_opens_total{peer="virginia",result="peer down"} 0`,
		`gradproxy_shared_values_total{how="evicted"} 0`, `gradproxy_parsers_gave_up_total{protocol="gloo"} 0`,
		`gradproxy_parsers_spent_total{of="time",peer="tokyo"} 0`, `gradproxy_carrier_failures_total{peer="tokyo",stage="established"} 0`} {
		if !strings.Contains(metrics, "\n"+series+"\n") {
			t.Errorf("no series %s before the first event", series)
		}
	}
	// Without a rule a tensor of any role travels by one of these.
	for _, codec := range []string{"lossless", "verbatim"} {
		for _, role := range tensor.Roles() {
			wanted := []string{fmt.Sprintf(`gradproxy_raw_bytes_total{codec=%q,peer="tokyo",role=%q,training_job=""} 0`, codec, role),
				fmt.Sprintf(`gradproxy_wire_bytes_total{codec=%q,peer="virginia",role=%q,training_job=""} 0`, codec, role),
				fmt.Sprintf(`gradproxy_verbatim_fallbacks_total{codec=%q,reason="no gain",role=%q} 0`, codec, role)}
			if codec == "lossless" {
				wanted = append(wanted, fmt.Sprintf(`gradproxy_encode_seconds_count{codec=%q,role=%q} 0`, codec, role))
			}
			for _, series := range wanted {
				if !strings.Contains(metrics, "\n"+series+"\n") {
					t.Errorf("no series %s before the first event", series)
				}
			}
		}
	}
	// These have labels of the job's own, and an alert on their level or on a long rise.
	later := map[string]bool{"gradproxy_residual_ratio": true, "gradproxy_guard_exact_total": true, "gradproxy_guard_tensors_total": true,
		"gradproxy_tensor_values_total": true, "gradproxy_raw_bytes_total": true, "gradproxy_wire_bytes_total": true,
		"gradproxy_budget_projected_bytes": true, "gradproxy_budget_bytes": true}
	named := 0
	for _, m := range regexp.MustCompile("`(gradproxy_[a-z_]+)").FindAllStringSubmatch(table, -1) {
		named++
		if name := m[1]; !later[name] && !strings.Contains(metrics, "\n"+name+"{") && !strings.Contains(metrics, "\n"+name+"_count{") && !strings.Contains(metrics, "\n"+name+" ") {
			t.Errorf("no series of %s before the first event", name)
		}
	}
	if named < 15 {
		t.Errorf("%d metrics: the table is not read", named)
	}
}
