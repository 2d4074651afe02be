package site

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/codecs"
	codeclist "github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser/all"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/tensor"
)

// The lines that the page gives to be copied are right in a configuration: they are merged into one as the lines say,
// for each reason, role and protocol, with a job and without.
func TestExplainedLinesAreAConfiguration(t *testing.T) {
	// Sums lose something only where the job's line says so.
	line := map[tensor.Role]string{tensor.Aggregate: "{name: train, networks: [10.0.0.0/8], sums: gradients, aggregates: lossy"}
	const base = "site: paris\ntunnel: {insecure: true, listen: \"127.0.0.1:7443\"}\npeers: [{name: tokyo, id: \"spiffe://lab/tokyo\", networks: [10.2.0.0/16], may_dial: [\"10.1.0.0/16:1024-65535\"]}]\nintercept: {mode: redirect}\n"
	lossy := func(text string) bool { c, err := codeclist.New(text); return err == nil && codecs.Lossy(c) }
	file := filepath.Join(t.TempDir(), "paris.yaml")
	seen := 0
	for why := tensor.OK; why.Valid(); why++ {
		for _, role := range tensor.Roles() {
			for _, p := range all.Protocols() {
				for _, job := range []string{"", "train"} {
					for _, codec := range []string{"verbatim", "lossless", "3lc", "int8"} {
						x := &proxy.TensorInfo{Reason: why.String(), Role: role.String(), Protocol: p.String(), Job: job, Codec: codec, Bytes: 4096, From: "10.1.0.7:39406", To: "10.2.0.7:44137"}
						lines := admin.Explain(x, lossy).YAML
						if lines == "" || role == tensor.Aggregate && (why == tensor.Guarded || why == tensor.Implausible) && job == "" {
							continue
						}
						seen++
						text := base + lines
						if before, after, ok := strings.Cut(lines, "  - {name: train, "); ok { // the job has a line already
							text = base + before + "  - {name: train, networks: [10.0.0.0/8], " + after
						} else if job != "" {
							text += "jobs: [" + cmp.Or(line[role], "{name: train, networks: [10.0.0.0/8]") + "}]\n"
						}
						if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
							t.Fatal(err)
						}
						if _, problems := config.Load(file, Known()); len(problems.Errors()) > 0 {
							t.Errorf("%s, %s, %s, job %q, %s: %v in\n%s", why, role, p, job, codec, problems.Errors(), lines)
						}
					}
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no lines are given")
	}
}
