// Package otlp sends metrics that a Prometheus registry gathers to a receiver of OpenTelemetry's protocol (OTLP over
// HTTP, in Protocol Buffers), such as an OpenTelemetry Collector.
//
// Sums are cumulative, so an export that fails is not repeated and nothing is kept for it: the next one carries
// everything. At most one export is under way, and its time and the bytes that are read of its answer are bounded.
package otlp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// Every is the time from one export to the next.
	Every = 15 * time.Second

	within    = 10 * time.Second // that an export may take
	lastly    = 2 * time.Second  // that the last one may take: the end of the process waits for it
	maxAnswer = 64 << 10         // bytes of a receiver's answer that are read
	path      = "/v1/metrics"    // where receivers expect metrics
)

// An Exporter sends metrics to one receiver.
type Exporter struct {
	Endpoint string // URL of the receiver, with or without /v1/metrics
	Site     string // names this process among others
	Version  string // of gradproxy
	Gatherer prometheus.Gatherer
	Client   *http.Client // must not follow redirects
	Log      *slog.Logger

	began  time.Time
	failed int // exports in a row
}

// ParseEndpoint returns the URL of a receiver with the path of metrics, or an error that says how to write it.
func ParseEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q is not the URL of an OTLP receiver over HTTP: write it as http://127.0.0.1:4318", text)
	}
	if _, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16); err != nil {
		return "", fmt.Errorf("%q has a port above 65535: write it as http://127.0.0.1:4318", text)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = path
	}
	return u.String(), nil
}

// Port returns the TCP port of a receiver that ParseEndpoint has returned; 0: there is none.
func Port(endpoint string) uint16 {
	u, err := url.Parse(endpoint)
	if err != nil || endpoint == "" {
		return 0
	}
	if u.Port() == "" {
		return map[string]uint16{"http": 80, "https": 443}[u.Scheme]
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// Run exports at regular intervals until ctx ends. An export that is under way then is given up.
func (e *Exporter) Run(ctx context.Context) {
	e.began = time.Now()
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		e.export(ctx, within)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Last exports once more, after Run: the last values are sent, or given up after two seconds.
func (e *Exporter) Last() { e.export(context.Background(), lastly) }

// export sends all metrics once. The log tells the first of several failures in a row, and their end. An export that
// ends with run is no failure.
func (e *Exporter) export(run context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(run, within)
	defer cancel()
	err := e.send(ctx)
	switch {
	case err != nil && run.Err() != nil:
		return
	case err != nil && e.failed == 0:
		e.Log.Warn("metrics cannot be sent by OTLP; it is tried again", "otlp", e.Endpoint, "every", Every, "err", err)
	case err == nil && e.failed > 0:
		e.Log.Info("metrics are sent by OTLP again", "otlp", e.Endpoint, "failed", e.failed)
	}
	if e.failed++; err == nil {
		e.failed = 0
	}
}

func (e *Exporter) send(ctx context.Context) error {
	families, err := e.Gatherer.Gather()
	if err != nil && len(families) == 0 {
		return err
	}
	body, err := proto.Marshal(&collector.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{e.resource(families, time.Now())}})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.Endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("User-Agent", "gradproxy/"+e.Version)
	response, err := e.Client.Do(request)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // the log has the URL already
		}
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the receiver answers %s", response.Status)
	}
	if err != nil {
		return err
	}
	var said collector.ExportMetricsServiceResponse
	if err := proto.Unmarshal(answer, &said); err != nil || !strings.HasPrefix(response.Header.Get("Content-Type"), "application/x-protobuf") {
		return nil // it has them, and says so in its own way
	}
	if n := said.GetPartialSuccess().GetRejectedDataPoints(); n > 0 {
		return fmt.Errorf("the receiver refuses %d values: %.200q", n, said.GetPartialSuccess().GetErrorMessage())
	}
	return nil
}
