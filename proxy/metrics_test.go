package proxy

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// seriesOf returns the samples of a registry by name and labels, NAME{LABEL="VALUE",...}; of histograms their counts.
func seriesOf(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			name := strings.TrimPrefix(f.GetName(), "gradproxy_") + "{" + strings.Join(labels, ",") + "}"
			if all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue(); f.GetType() == dto.MetricType_HISTOGRAM {
				all[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return all
}

// The series that the settings lead to are there before the first connection, at 0, and no series of a job begins with
// its traffic: a rise is seen from its first byte.
func TestSeriesBeginAtZero(t *testing.T) {
	near, far := prometheus.NewRegistry(), prometheus.NewRegistry()
	gradients := policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "halves"}
	p := newPairWith(t, func(name string, c *Config) {
		c.Metrics = NewMetrics(map[string]*prometheus.Registry{"near": near, "far": far}[name])
	}, []parser.Protocol{pathtest.Toy{Role: tensor.Gradient, Proof: tensor.ByUpdate}}, gradients)
	settings := *p.near.settings.Load()
	settings.Jobs = []Job{{Name: "resnet", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		{Name: "elsewhere", Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
	p.near.Apply(settings)
	before := seriesOf(t, near)
	for _, name := range []string{
		`raw_bytes_total{codec="halves",peer="far",role="gradient",training_job="resnet"}`, `wire_bytes_total{codec="verbatim",peer="far",role="unknown",training_job=""}`,
		`verbatim_fallbacks_total{codec="halves",reason="implausible",role="gradient"}`, `residual_ratio{codec="halves",role="gradient"}`,
		`relative_error{codec="halves",role="gradient"}`, `guard_exact_total{codec="halves",role="gradient"}`, `connections{client="there",peer="far"}`,
		`connections_ended_total{how="closed",peer="far"}`, `delivered_bytes_total{peer="far",training_job=""}`, `encode_seconds{codec="halves",role="gradient"}`} {
		if v, ok := before[name]; !ok || v != 0 {
			t.Errorf("%s is %v before the first connection (there: %v), want 0", name, v, ok)
		}
	}
	for name := range before {
		if strings.Contains(name, `training_job="elsewhere"`) {
			t.Errorf("%s: none of the job's hosts are behind the peer", name)
		}
	}
	c, s := p.connect(t)
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(1, 2))}
	for range 9 {
		v, msg := values(l.r)
		l.step(c, s, v, msg)
	}
	waitFor(t, func() bool {
		return seriesOf(t, near)[`raw_bytes_total{codec="halves",peer="far",role="gradient",training_job="resnet"}`] == 9*4*lossyValues
	})
	after := seriesOf(t, near)
	if n := after[`relative_error{codec="halves",role="gradient"}`]; n != 2 {
		t.Errorf("the relative error of %v blocks of 9 was measured, want 2", n)
	}
	for name := range after {
		if _, ok := before[name]; !ok && !strings.HasPrefix(name, "tensor_values_total") {
			t.Errorf("%s begins with the first traffic", name)
		}
	}
	if n := seriesOf(t, far)[`decode_seconds{codec="halves",role="gradient"}`]; n != 9 {
		t.Errorf("%v blocks of the role were decoded, want 9", n)
	}
}
