package site

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/proxy/trials"
)

// A shadowCollector shows the results of candidates.
type shadowCollector struct {
	report func() (trials.Report, bool)
}

var (
	shadowBytesDesc = prometheus.NewDesc("gradproxy_shadow_predicted_bytes",
		"Bytes that a candidate of shadow would have handed to the tunnel in place of gradproxy_wire_bytes_total.", []string{"peer", "training_job", "role", "codec"}, nil)
	shadowErrorDesc = prometheus.NewDesc("gradproxy_shadow_relative_error",
		"Mean norm of the loss of a block in trials over the norm of the encoded value, which feedback is part of.", []string{"peer", "training_job", "role", "codec"}, nil)
	shadowMoneyDesc = prometheus.NewDesc("gradproxy_shadow_predicted_egress",
		"Money for gradproxy_shadow_predicted_bytes at the present price of the peer, with the headers that its link has had for each byte so far.", []string{"peer", "training_job", "role", "codec", "currency"}, nil)
	shadowSpentDesc = prometheus.NewDesc("gradproxy_shadow_core_seconds_total",
		"Seconds of a core that trials have taken.", nil, nil)
	shadowValuesDesc = prometheus.NewDesc("gradproxy_shadow_values_total",
		"Values of tensors in the sample, by whether all candidates have coded them or there was no room.", []string{"result"}, nil)
)

// Describe lists the metrics.
func (c *shadowCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{shadowBytesDesc, shadowErrorDesc, shadowMoneyDesc, shadowSpentDesc, shadowValuesDesc} {
		ch <- d
	}
}

// Collect sends nothing where there are no candidates.
func (c *shadowCollector) Collect(ch chan<- prometheus.Metric) {
	r, ok := c.report()
	if !ok {
		return
	}
	ch <- prometheus.MustNewConstMetric(shadowSpentDesc, prometheus.CounterValue, r.Spent)
	ch <- prometheus.MustNewConstMetric(shadowValuesDesc, prometheus.CounterValue, float64(r.Values), "coded")
	ch <- prometheus.MustNewConstMetric(shadowValuesDesc, prometheus.CounterValue, float64(r.Dropped), "dropped")
	for _, g := range r.Groups {
		for _, x := range g.Candidates {
			ch <- prometheus.MustNewConstMetric(shadowBytesDesc, prometheus.GaugeValue, float64(x.Predicted), g.Peer, g.Job, g.Role, x.Codec)
			ch <- prometheus.MustNewConstMetric(shadowErrorDesc, prometheus.GaugeValue, x.Error, g.Peer, g.Job, g.Role, x.Codec)
			if x.Money != nil {
				ch <- prometheus.MustNewConstMetric(shadowMoneyDesc, prometheus.GaugeValue, x.Money.Cost, g.Peer, g.Job, g.Role, x.Codec, x.Money.Currency)
			}
		}
	}
}

// shadow returns the results of candidates, with the money that each would cost where the peer has a price.
func (s *Site) shadow() (trials.Report, bool) {
	r, ok := s.proxy.Shadow()
	if !ok || s.tunnel == nil {
		return r, ok
	}
	for _, p := range s.tunnel.Stats() {
		m := s.money.now(&p)
		wire := 0.0
		for _, t := range s.metrics.Traffic() {
			if t.Peer == p.Peer {
				wire += float64(t.Wire)
			}
		}
		if m.currency == "" || wire == 0 {
			continue
		}
		each := float64(p.Network.Sent) / wire / gigabyte * m.price
		for i := range r.Groups {
			g := &r.Groups[i]
			for k := range g.Candidates {
				if x := &g.Candidates[k]; g.Peer == p.Peer {
					x.Money = &trials.Money{Currency: m.currency, Cost: each * float64(x.Predicted), Saved: each * float64(g.Wire-x.Predicted)}
				}
			}
		}
	}
	return r, true
}
