package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/gradproxy/gradproxy/integration/require"
)

const root = "../../.."

// The committed files are the ones that this command makes, and there are no others.
func TestFilesAreMade(t *testing.T) {
	files, err := render()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what go run ./integration/cmd/dashboards makes (%v)", name, err)
		}
	}
	boards, err := filepath.Glob(filepath.Join(root, "deploy/grafana/*"))
	if err != nil || len(boards)+2 != len(files) {
		t.Errorf("deploy/grafana has %v (%v), of %d files that are made", boards, err, len(files)-2)
	}
}

// Grafana's own types read the dashboards. Panels do not lie on each other, and each has a title of its own, at least
// one expression, and series that differ by name.
func TestBoardsAreWhole(t *testing.T) {
	known := cog.NewRuntime()
	known.RegisterPanelcfgVariant(stat.VariantConfig())
	known.RegisterPanelcfgVariant(timeseries.VariantConfig())
	known.RegisterDataqueryVariant(prometheus.VariantConfig())
	files, err := render()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if !strings.HasSuffix(name, ".json") {
			continue
		}
		var b dashboard.Dashboard
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		taken, titles := map[[2]uint32]uint32{}, map[string]bool{}
		for _, p := range b.Panels {
			p, title := p.Panel, *p.Panel.Title
			if titles[title] || len(p.Targets) == 0 {
				t.Errorf("%s: panel %q has %d expressions, or the title of another", name, title, len(p.Targets))
			}
			titles[title] = true
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]uint32{p.GridPos.X + x, p.GridPos.Y + y}
					if other := taken[at]; other != 0 || at[0] >= columns {
						t.Errorf("%s: panel %q lies on panel %d, or beyond the edge", name, title, other)
					}
					taken[at] = *p.Id
				}
			}
			for _, target := range p.Targets {
				q, ok := target.(*prometheus.Dataquery)
				if !ok {
					t.Fatalf("%s: %q has a query that is a %T", name, title, target)
				}
				if !strings.Contains(q.Expr, "$instance") {
					t.Errorf("%s: %q is not of the chosen proxies: %s", name, title, q.Expr)
				}
			}
		}
		if len(b.Panels) < 9 {
			t.Errorf("%s has %d panels", name, len(b.Panels))
		}
	}
}

// Prometheus' own tool takes the rules and alerts, and its tests of them pass: each alert is raised where it should be,
// and in a good hour none is.
func TestRules(t *testing.T) {
	_, promtool := require.Prometheus(t)
	folder := filepath.Join(root, "deploy/prometheus")
	for _, args := range [][]string{{"check", "rules", "rules.yml", "alerts.yml"}, {"test", "rules", "tests.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tests, err := os.ReadFile(filepath.Join(folder, "tests.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range slices.Concat(alerts(), recorded()) {
		for _, r := range g.Rules {
			switch {
			case r.Alert != "" && (!bytes.Contains(tests, []byte("alertname: "+r.Alert+"}")) || !bytes.Contains(tests, []byte("alertname: "+r.Alert+"\n        exp_alerts:\n          - exp_labels:"))):
				t.Errorf("tests.yml does not test that %s is raised, and that it is not", r.Alert)
			case r.Record != "" && !bytes.Contains(tests, []byte("expr: round("+r.Record+",")):
				t.Errorf("tests.yml does not test %s", r.Record)
			}
		}
	}
}

// Each metric that docs/operations.md calls worth an alert has one.
func TestDocumentedAlerts(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\nWorth an alert:\n\n")
	table, _, found := strings.Cut(table, "\n\n")
	if !found {
		t.Fatal("docs/operations.md has no table of alerts")
	}
	// The mean of the residuals and the ratio of the link are recorded from these; a tensor that is guarded has a block
	// that is.
	recorded := map[string]string{"gradproxy_residual_ratio": "gradproxy_residual_ratio:mean5m", "gradproxy_raw_bytes_total": "gradproxy_link_ratio:rate5m",
		"gradproxy_wire_bytes_total": "gradproxy_link_ratio:rate5m", "gradproxy_guard_tensors_total": "gradproxy_guard_exact_total",
		"gradproxy_verbatim_fallbacks_total": "gradproxy_link_ratio:rate5m"}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(gradproxy_[a-z_]+)").FindAllStringSubmatch(table, -1) {
		named[m[1]] = true
	}
	if len(named) < 18 {
		t.Fatalf("%d metrics: the table is not read", len(named))
	}
	text, err := writeRules(alerts())
	if err != nil {
		t.Fatal(err)
	}
	for name := range maps.Keys(named) {
		if other := recorded[name]; other != "" {
			name = other
		}
		if !bytes.Contains(text, []byte(name)) {
			t.Errorf("no alert has %s", name)
		}
	}
}
