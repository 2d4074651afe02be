package otlp

import (
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// resource returns families as OTLP has them, under their names in /metrics.
func (e *Exporter) resource(families []*dto.MetricFamily, now time.Time) *metrics.ResourceMetrics {
	scope := &metrics.ScopeMetrics{Scope: &common.InstrumentationScope{Name: "github.com/gradproxy/gradproxy", Version: e.Version}}
	for _, f := range families {
		if m := e.metric(f, uint64(now.UnixNano())); m != nil {
			scope.Metrics = append(scope.Metrics, m)
		}
	}
	return &metrics.ResourceMetrics{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			attribute("service.name", "gradproxy"), attribute("service.instance.id", e.Site), attribute("service.version", e.Version),
		}},
		ScopeMetrics: []*metrics.ScopeMetrics{scope},
	}
}

// metric converts one family; nil: it is of no type that OTLP has.
func (e *Exporter) metric(f *dto.MetricFamily, now uint64) *metrics.Metric {
	m := &metrics.Metric{Name: f.GetName(), Description: f.GetHelp(), Unit: unit(f.GetName())}
	var numbers []*metrics.NumberDataPoint
	number := func(x *dto.Metric, value float64, created *timestamppb.Timestamp) {
		p := &metrics.NumberDataPoint{Attributes: attributes(x), TimeUnixNano: now, Value: &metrics.NumberDataPoint_AsDouble{AsDouble: value}}
		if f.GetType() == dto.MetricType_COUNTER {
			p.StartTimeUnixNano = e.start(created)
		}
		numbers = append(numbers, p)
	}
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		for _, x := range f.GetMetric() {
			number(x, x.GetCounter().GetValue(), x.GetCounter().GetCreatedTimestamp())
		}
		m.Data = &metrics.Metric_Sum{Sum: &metrics.Sum{DataPoints: numbers, IsMonotonic: true, AggregationTemporality: metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}}
	case dto.MetricType_GAUGE:
		for _, x := range f.GetMetric() {
			number(x, x.GetGauge().GetValue(), nil)
		}
		m.Data = &metrics.Metric_Gauge{Gauge: &metrics.Gauge{DataPoints: numbers}}
	case dto.MetricType_HISTOGRAM:
		h := &metrics.Histogram{AggregationTemporality: metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}
		for _, x := range f.GetMetric() {
			h.DataPoints = append(h.DataPoints, e.histogram(x, now))
		}
		m.Data = &metrics.Metric_Histogram{Histogram: h}
	case dto.MetricType_SUMMARY:
		s := &metrics.Summary{}
		for _, x := range f.GetMetric() {
			s.DataPoints = append(s.DataPoints, e.summary(x, now))
		}
		m.Data = &metrics.Metric_Summary{Summary: s}
	default:
		return nil
	}
	return m
}

// histogram converts buckets that count all smaller values to ones that count their own.
func (e *Exporter) histogram(x *dto.Metric, now uint64) *metrics.HistogramDataPoint {
	h := x.GetHistogram()
	sum := h.GetSampleSum()
	p := &metrics.HistogramDataPoint{Attributes: attributes(x), StartTimeUnixNano: e.start(h.GetCreatedTimestamp()), TimeUnixNano: now, Count: h.GetSampleCount(), Sum: &sum}
	var below uint64
	for _, b := range h.GetBucket() {
		if b.GetUpperBound() > 1e308 {
			continue // +Inf: OTLP's last bucket has no bound
		}
		p.ExplicitBounds = append(p.ExplicitBounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-below)
	return p
}

func (e *Exporter) summary(x *dto.Metric, now uint64) *metrics.SummaryDataPoint {
	s := x.GetSummary()
	p := &metrics.SummaryDataPoint{Attributes: attributes(x), StartTimeUnixNano: e.start(s.GetCreatedTimestamp()), TimeUnixNano: now, Count: s.GetSampleCount(), Sum: s.GetSampleSum()}
	for _, q := range s.GetQuantile() {
		p.QuantileValues = append(p.QuantileValues, &metrics.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
	}
	return p
}

// start returns when a series began: when it was created, if it tells, or else with this Exporter.
func (e *Exporter) start(created *timestamppb.Timestamp) uint64 {
	if created != nil {
		return uint64(created.AsTime().UnixNano())
	}
	return uint64(e.began.UnixNano())
}

// unit returns the unit in a metric's name, as UCUM writes it.
func unit(name string) string {
	name = strings.TrimSuffix(name, "_total")
	switch {
	case strings.HasSuffix(name, "_bytes_per_second"):
		return "By/s"
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case strings.HasSuffix(name, "_bytes"):
		return "By"
	}
	return ""
}

func attributes(x *dto.Metric) (all []*common.KeyValue) {
	for _, l := range x.GetLabel() {
		all = append(all, attribute(l.GetName(), l.GetValue()))
	}
	return all
}

func attribute(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}
