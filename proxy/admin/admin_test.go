package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

func get(t *testing.T, h http.Handler, method, path string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String(), w.Header()
}

func handler() http.Handler {
	return Handler(Config{
		Site:    "paris",
		Version: "v1",
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "gradproxy_x 1\n") }),
		Tensors: func() []proxy.TensorInfo {
			return []proxy.TensorInfo{{Job: "<resnet>", Protocol: "gloo", Key: 1 << 63, Bytes: 4096, DType: "float32", Role: "gradient",
				Codec: "lossless", Reason: "no rule", Values: 3, RawBytes: 12288, WireBytes: 6144}}
		},
		Shadow: func() (trials.Report, bool) {
			return trials.Report{Codecs: []string{"int8"}, Groups: []trials.Group{{Peer: "tokyo", Role: "gradient", Raw: 7, Candidates: []trials.Candidate{{Predicted: 3}}}}}, true
		},
		Peers: func(context.Context) []Excerpt { return []Excerpt{{Peer: "tokyo", Text: "{}"}} },
		Checks: func() []Check {
			return []Check{{Name: "tunnel"}, {"peer/tokyo", errors.New("no session")}}
		},
	})
}

// Without candidates there is nothing to show, and the answer says how to have some.
func TestNoShadow(t *testing.T) {
	h := Handler(Config{Shadow: func() (trials.Report, bool) { return trials.Report{}, false }})
	if status, body, _ := get(t, h, "GET", "/shadow"); status != 404 || !strings.Contains(body, "shadow: [int8, 3lc]") {
		t.Errorf("%d %s", status, body)
	}
}

func TestPages(t *testing.T) {
	h := handler()
	for _, x := range []struct {
		method, path string
		status       int
		holds        []string
	}{
		{"GET", "/healthz", 200, []string{"ok\n"}},
		{"GET", "/readyz", 503, []string{"✓ tunnel\n", "✗ peer/tokyo: no session\n", "not ready\n"}},
		{"GET", "/readyz?exclude=peer/tokyo", 200, []string{"✓ tunnel\n", "- peer/tokyo: excluded\n", "\nready\n"}},
		{"GET", "/readyz?exclude=tunnel", 503, []string{"not ready\n"}},
		{"GET", "/metrics", 200, []string{"gradproxy_x 1\n"}},
		{"GET", "/", 200, []string{"<title>gradproxy</title>", "page/app.js"}},
		{"GET", "/page/app.js", 200, []string{"EventSource"}},
		{"GET", "/page/uplot.LICENSE.txt", 200, []string{"MIT", "Leon Sorokin"}},
		{"GET", "/page/..%2fadmin.go", 404, nil},
		{"GET", "/page/nothing", 404, nil},
		{"GET", "/live", 200, []string{`"time_ms"`}},
		{"GET", "/history?step=10", 200, nil},
		{"GET", "/history?step=7", 400, []string{"write 1, 10 or 240"}},
		{"GET", "/history?step=" + strings.Repeat("9", 10000), 400, nil},
		{"GET", "/tensor?id=7", 404, []string{"ids begin anew"}},
		{"GET", "/tensor?id=x", 400, nil},
		{"GET", "/tensor?id=7&peer=tokyo", 404, nil},
		{"GET", "/peers", 200, []string{`"site": "paris"`, `"peer": "tokyo"`, `"text": "{}"`}},
		{"GET", "/shadow", 200, []string{`"codecs": [`, `"int8"`, `"peer": "tokyo"`, `"raw_bytes": 7`, `"predicted_bytes": 3`}},
		{"GET", "/tensors", 200, []string{`"count": 1`, `"job": "`}},
		{"GET", "/tensors?limit=0", 200, []string{`"count": 1`, `"tensors": []`}},
		{"GET", "/tensors?limit=9", 200, []string{`"count": 1`, `"job": "`}},
		{"GET", "/tensors?limit=-1", 400, []string{"write a whole number"}},
		{"GET", "/tensors?limit=99999999999999999999", 400, nil},
		{"HEAD", "/", 200, nil},
		{"POST", "/", 405, nil},
		{"DELETE", "/tensors", 405, nil},
		{"GET", "/debug/pprof/", 404, nil},
		{"GET", "/nothing", 404, nil},
	} {
		status, body, header := get(t, h, x.method, x.path)
		if status != x.status {
			t.Errorf("%s %s: status %d, want %d", x.method, x.path, status, x.status)
		}
		for _, part := range x.holds {
			if !strings.Contains(body, part) {
				t.Errorf("%s %s: no %q in\n%s", x.method, x.path, part, body)
			}
		}
		if header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: headers %v", x.method, x.path, header)
		}
	}
}

// The names in /tensors are a contract, and keys are text: JSON readers round numbers beyond 2^53.
func TestTensorsAsJSON(t *testing.T) {
	_, body, header := get(t, handler(), "GET", "/tensors")
	if header.Get("Content-Type") != "application/json" {
		t.Errorf("Content-Type %q", header.Get("Content-Type"))
	}
	var got struct{ Tensors []map[string]any }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"job": "<resnet>", "protocol": "gloo", "direction": "", "key": "9223372036854775808", "bytes": 4096.0,
		"dtype": "float32", "role": "gradient", "evidence": "", "codec": "lossless", "reason": "no rule", "values": 3.0,
		"raw_bytes": 12288.0, "wire_bytes": 6144.0}
	if len(got.Tensors) != 1 {
		t.Fatalf("%d tensors, want 1: %s", len(got.Tensors), body)
	}
	for name, v := range want {
		if got.Tensors[0][name] != v {
			t.Errorf("%s = %v, want %v", name, got.Tensors[0][name], v)
		}
	}
	if len(got.Tensors[0]) < len(want) {
		t.Errorf("fields: %v", got.Tensors[0])
	}
}

// An empty list is a list, and the zero Config answers.
func TestZeroConfig(t *testing.T) {
	h := Handler(Config{})
	if _, body, _ := get(t, h, "GET", "/tensors"); !strings.Contains(body, `"tensors": []`) {
		t.Errorf("/tensors: %s", body)
	}
	if status, _, _ := get(t, h, "GET", "/readyz"); status != 200 {
		t.Errorf("/readyz: %d", status)
	}
	if status, _, _ := get(t, h, "GET", "/metrics"); status != 404 {
		t.Errorf("/metrics: %d", status)
	}
	if status, _, header := get(t, h, "GET", "/"); status != 200 || strings.Contains(header.Get("Content-Security-Policy"), "unsafe") {
		t.Errorf("/: %d %v", status, header)
	}
}

// It serves a unix socket until the end, over the socket that a dead process left; a living one, or a file of another
// kind, is left alone.
func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()

	l, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("socket: %v, %v", info, err)
	}
	if _, err := Listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "another process listens there") {
		t.Errorf("beside a living one: %v", err)
	}
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix:" + file); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("over a file: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, Config{}) }()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}}
	r, err := client.Get("http://admin/healthz")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestListenErrorsSayWhatToDo(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, want := range map[string]string{
		l.Addr().String():    "the port is in use",
		"192.0.2.77:9090":    "correct admin in the configuration",
		"unix:/no/such/path": "correct admin in the configuration",
	} {
		if _, err := Listen(address); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// A loss of money that rounds to nothing is none.
func TestAmount(t *testing.T) {
	for x, want := range map[float64]string{0: "0.00 USD", 1.005e3: "1005.00 USD", -0.004: "0.00 USD", -0.006: "-0.01 USD"} {
		if got := Amount(x, "USD"); got != want {
			t.Errorf("%v is written %q, want %q", x, got, want)
		}
	}
}
