package site

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// With the key otlp a running site sends every family of its /metrics, and goes on sending nothing else than metrics when it ends.
func TestMetricsGoToOTLP(t *testing.T) {
	came := make(chan *collector.ExportMetricsServiceRequest, 4)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		q := new(collector.ExportMetricsServiceRequest)
		if err == nil {
			err = proto.Unmarshal(body, q)
		}
		if err != nil {
			t.Error(err)
		}
		select {
		case came <- q:
		default:
		}
	}))
	defer receiver.Close()
	r := func() *running { lab := newLab(t); return lab.run(lab.load(0, "otlp: "+receiver.URL+"\n")) }()
	var q *collector.ExportMetricsServiceRequest
	select {
	case q = <-came:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing comes")
	}
	has := map[string]bool{}
	for _, m := range q.ResourceMetrics[0].ScopeMetrics[0].Metrics {
		has[m.Name] = true
	}
	_, text := r.get("/metrics")
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
