package otlp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// receive serves OTLP until the test ends, and returns its URL and the requests that come.
func receive(t *testing.T) (url string, came <-chan *collector.ExportMetricsServiceRequest) {
	requests := make(chan *collector.ExportMetricsServiceRequest, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		q := new(collector.ExportMetricsServiceRequest)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/metrics" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, q) != nil {
			t.Errorf("%s %s %v: %d bytes, %v", r.Method, r.URL, r.Header, len(body), err)
		}
		requests <- q
		w.Header().Set("Content-Type", "application/x-protobuf")
		b, _ := proto.Marshal(&collector.ExportMetricsServiceResponse{})
		w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// A receiver gets every kind of metric with its values, labels, unit and beginning.
func TestReceiverGetsMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gradproxy_raw_bytes_total", Help: "Bytes."}, []string{"peer"})
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_peer_up", Help: "Up."})
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "gradproxy_encode_seconds", Help: "Time.", Buckets: []float64{1, 2, 4}})
	pauses := prometheus.NewSummary(prometheus.SummaryOpts{Name: "pauses_seconds", Help: "Pauses.", Objectives: map[float64]float64{0.5: 0.01}})
	r.MustRegister(bytes, up, seconds, pauses)
	before := time.Now()
	bytes.WithLabelValues("tokyo").Add(7)
	up.Set(1)
	for _, x := range []float64{0.5, 1.5, 1.7, 9} {
		seconds.Observe(x)
		pauses.Observe(x)
	}
	url, came := receive(t)
	endpoint, err := ParseEndpoint(url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	e := &Exporter{Endpoint: endpoint, Site: "paris", Version: "v1", Gatherer: r, Client: http.DefaultClient, Log: slog.New(slog.DiscardHandler)}
	go func() { e.Run(ctx); close(done) }()
	q := <-came
	resource := q.ResourceMetrics[0].Resource.Attributes
	if resource[0].Value.GetStringValue() != "gradproxy" || resource[1].Value.GetStringValue() != "paris" || resource[2].Value.GetStringValue() != "v1" {
		t.Errorf("resource %v", resource)
	}
	got := map[string]*metrics.Metric{}
	for _, m := range q.ResourceMetrics[0].ScopeMetrics[0].Metrics {
		got[m.Name] = m
	}
	if len(got) != 4 {
		t.Fatalf("%d metrics, want 4", len(got))
	}
	sum := got["gradproxy_raw_bytes_total"].GetSum()
	p := sum.DataPoints[0]
	if !sum.IsMonotonic || sum.AggregationTemporality != metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE || p.GetAsDouble() != 7 ||
		p.Attributes[0].Key != "peer" || p.Attributes[0].Value.GetStringValue() != "tokyo" || got["gradproxy_raw_bytes_total"].Unit != "By" ||
		p.StartTimeUnixNano < uint64(before.Add(-time.Minute).UnixNano()) || p.StartTimeUnixNano > p.TimeUnixNano {
		t.Errorf("counter %v", sum)
	}
	if g := got["gradproxy_peer_up"].GetGauge().DataPoints[0]; g.GetAsDouble() != 1 {
		t.Errorf("gauge %v", g)
	}
	h := got["gradproxy_encode_seconds"].GetHistogram().DataPoints[0]
	if !slices.Equal(h.ExplicitBounds, []float64{1, 2, 4}) || !slices.Equal(h.BucketCounts, []uint64{1, 2, 0, 1}) || h.Count != 4 || h.GetSum() != 12.7 || got["gradproxy_encode_seconds"].Unit != "s" {
		t.Errorf("histogram %v", h)
	}
	if s := got["pauses_seconds"].GetSummary().DataPoints[0]; s.Count != 4 || s.Sum != 12.7 || len(s.QuantileValues) != 1 {
		t.Errorf("summary %v", s)
	}
	bytes.WithLabelValues("tokyo").Add(1)
	cancel()
	<-done
	e.Last()
	last := (<-came).ResourceMetrics[0].ScopeMetrics[0].Metrics
	if i := slices.IndexFunc(last, func(m *metrics.Metric) bool { return m.Name == "gradproxy_raw_bytes_total" }); last[i].GetSum().DataPoints[0].GetAsDouble() != 8 {
		t.Errorf("at the end %v", last[i])
	}
}

// A RoundTripper that is a function.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A receiver that is silent, then absent, then back costs one export at a time, each bounded, and two lines of log.
func TestFailuresAreBoundedAndSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var asked, atOnce, largest int
		answer := func(status int, body string) (*http.Response, error) {
			return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
		began := time.Now()
		e := &Exporter{Endpoint: "http://192.0.2.1:4318/v1/metrics", Gatherer: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&log, nil)),
			Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				asked++
				atOnce++
				defer func() { atOnce-- }()
				largest = max(largest, atOnce)
				switch d := time.Since(began); {
				case d < time.Minute:
					<-r.Context().Done()
					return nil, r.Context().Err()
				case d < 2*time.Minute:
					return answer(http.StatusServiceUnavailable, strings.Repeat("busy ", 1<<20))
				}
				return answer(http.StatusOK, "")
			})}}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		e.Run(ctx)
		if took := time.Since(began); took > 3*time.Minute || largest != 1 || asked > 14 {
			t.Errorf("%d exports, %d at once, in %v", asked, largest, took)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "deadline exceeded") || !strings.Contains(lines[1], "are sent by OTLP again") {
			t.Errorf("the log:\n%s", &log)
		}
	})
}

// A receiver that is silent delays the end of the process by two seconds at most, whether an export is under way or
// not, and the end is no failure.
func TestSilentReceiverDelaysNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := &Exporter{Endpoint: "http://192.0.2.1:4318/v1/metrics", Gatherer: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&log, nil)),
			Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		e.Run(ctx)
		if took := time.Since(began); took != time.Second || log.Len() > 0 {
			t.Errorf("Run ends after %v, and the log says %q", took, &log)
		}
		e.Last()
		if took := time.Since(began); took != time.Second+lastly {
			t.Errorf("the last export ends after %v", took)
		}
	})
}

func TestEndpointsAreParsed(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:4318": "http://127.0.0.1:4318/v1/metrics", "https://otel.example/": "https://otel.example/v1/metrics",
		"http://otel:4318/x/v1/metrics": "http://otel:4318/x/v1/metrics", "127.0.0.1:4318": "", "grpc://a:4317": "", "http://": "", "http://a:99999": "",
		"http://user:secret@a": "", "http://a?x=1": "", "": "",
	} {
		got, err := ParseEndpoint(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for endpoint, want := range map[string]uint16{"": 0, "http://a/v1/metrics": 80, "https://a/v1/metrics": 443, "http://[::1]:4318/v1/metrics": 4318} {
		if got := Port(endpoint); got != want {
			t.Errorf("port of %q is %d", endpoint, got)
		}
	}
}
