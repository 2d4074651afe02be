package site

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// With the key otlp a running site sends every family of its /metrics.
func TestMetricsGoToOTLP(t *testing.T) {
	var mu sync.Mutex
	has := map[string]bool{} // families of the newest export
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		q := new(collector.ExportMetricsServiceRequest)
		if err == nil {
			err = proto.Unmarshal(body, q)
		}
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		clear(has)
		for _, m := range q.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			has[m.Name] = true
		}
	}))
	defer receiver.Close()
	r := func() *running { lab := newLab(t); return lab.run(lab.load(0, "otlp: "+receiver.URL+"\n")) }()
	_, text := r.get("/metrics")
	r.end() // families may be new since the first export; the last one has them all
	r.wait(t)
	if at := netip.MustParseAddrPort(receiver.Listener.Addr().String()); !slices.Contains(r.receivers.each(), at) {
		t.Error("the proxy's own connections to the receiver count as connections past the proxies")
	}
	mu.Lock()
	defer mu.Unlock()
	families := 0
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" {
			families++
			if !has[f[2]] {
				t.Errorf("%s is in /metrics, and was not sent", f[2])
			}
		}
	}
	if families < 40 || !has["gradproxy_peer_up"] {
		t.Errorf("%d families", families)
	}
}
