package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/advise"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/pair"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// The command advise names a codec and a reason for each role that a job in shadow mode sends, and check accepts a
// configuration with its rules.
func TestAdviseOnAJob(t *testing.T) {
	for wire, roles := range map[string][]string{"pslite": {"gradient", "state"}, "gloo": {"gradient"}} {
		t.Run(wire, func(t *testing.T) {
			steps, enough := 60, true
			if require.Race && wire == "pslite" { // a step takes long there; after so few, no codec is advised yet
				steps, enough = 10, false
			}
			told := map[string]bool{}
			runAsked(t, wire, "lossless", steps, []string{"int8", "int4"}, func(s *pair.Site) {
				address := serveAdmin(t, s)
				text, object := answer(t, "advise", "--admin", address), answer(t, "advise", "--json", "--admin", address)
				var a advise.Advice
				if err := json.Unmarshal([]byte(object), &a); err != nil {
					t.Fatalf("%v: %s", err, object)
				}
				for _, c := range a.Choices {
					if c.Codec == "" && enough {
						t.Errorf("no codec for %s: %s", c.Role, c.Why)
					}
					told[c.Role] = true
					why, _, _ := strings.Cut(c.Why, ", and takes") // a share of the time that has passed
					if !strings.Contains(text, why) || enough && !strings.Contains(c.Why, "relative error") || len(c.Options) != 2 {
						t.Errorf("%s for %s: %q with %d options in:\n%s", c.Codec, c.Role, c.Why, len(c.Options), text)
					}
				}
				if enough && len(a.Choices) > 0 && (a.YAML == "" || !strings.HasSuffix(text, a.YAML)) {
					t.Errorf("no rules, or others than in JSON:\n%s", text)
				}
				checkRules(t, a.YAML)
			})
			for _, role := range roles {
				if !told[role] {
					t.Errorf("no site advises on role %s", role)
				}
			}
		})
	}
}

// serveAdmin serves the admin address of a site until the test ends.
func serveAdmin(t *testing.T, s *pair.Site) (address string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: admin.Handler(admin.Config{Site: "paris", Version: "v1", Tensors: s.Tensors, Shadow: s.Shadow,
		Metrics: promhttp.HandlerFor(prometheus.NewRegistry(), promhttp.HandlerOpts{})})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return "unix:" + socket
}

// answer runs a command that must succeed, and returns what it prints.
func answer(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := execute(t.Context(), args, &out, &errs); code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

// checkRules checks a configuration with the rules of an advice.
func checkRules(t *testing.T, rules string) {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Write(pki.Options{Dir: dir, Domain: "lab", Sites: []string{"paris", "tokyo"}}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "paris.yaml")
	text := `site: paris
peers: [{name: tokyo, dial: "tokyo.example:7443", networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]}]
intercept: {mode: redirect}
jobs: [{name: demo, networks: [10.0.0.0/8], sums: gradients}]
` + rules
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	answer(t, "check", file)
}
