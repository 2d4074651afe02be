// Package promtest runs a real Prometheus for tests.
package promtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/freeport"
)

// A Server is a running Prometheus.
type Server struct{ address string }

// Start runs a Prometheus that scrapes the targets, addresses of TCP, each second, with the rules and alerts of the
// folder rules, for the time of the test. It skips the test where there is no Prometheus.
func Start(t *testing.T, rules string, targets ...string) *Server {
	t.Helper()
	server, _ := require.Prometheus(t)
	rules, err := filepath.Abs(rules)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q, %q]\nscrape_configs: [{job_name: gradproxy, static_configs: [{targets: [%s]}]}]\n",
		filepath.Join(rules, "rules.yml"), filepath.Join(rules, "alerts.yml"), strings.Join(targets, ", "))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	address, err := freeport.Find("tcp", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{address}
	cmd := exec.Command(server, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", s.address, "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("Prometheus:\n%s", text)
		}
	})
	return s
}

// A Sample is one series of an answer.
type Sample struct {
	Metric map[string]string
	Value  [2]any // time, and value as text
}

// Query evaluates an expression now.
func (s *Server) Query(expr string) ([]Sample, error) {
	response, err := http.PostForm("http://"+s.address+"/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []Sample }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%w: %s", err, body)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s", answer.Error)
	}
	return answer.Data.Result, nil
}

// Patience is how long a test waits for Prometheus: on a loaded machine many of its scrapes come too late.
const Patience = 2 * time.Minute

// Await waits until an expression, such as a comparison, has a value, and fails the test if it has none within
// Patience.
func (s *Server) Await(t *testing.T, expr string) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(100 * time.Millisecond) {
		result, err := s.Query(expr)
		if len(result) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: it has no value: %v", expr, err)
		}
	}
}

// Number returns the one value of an expression.
func (s *Server) Number(t *testing.T, expr string) float64 {
	t.Helper()
	result, err := s.Query(expr)
	if err != nil || len(result) != 1 {
		t.Fatalf("%s: %v, %v", expr, result, err)
	}
	return result[0].Number()
}

// Number returns the value, which is not a number if the answer is malformed.
func (x Sample) Number() float64 {
	text, _ := x.Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}
