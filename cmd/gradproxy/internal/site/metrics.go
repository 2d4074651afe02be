package site

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// counts are the metrics of this package. Labels are names of the configuration.
type counts struct {
	reloads   *prometheus.CounterVec
	loaded    prometheus.Gauge
	refreshes prometheus.Counter
	lost      *prometheus.CounterVec
	failed    *prometheus.CounterVec
}

func newCounts(reg prometheus.Registerer, version string) *counts {
	c := &counts{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gradproxy_config_reloads_total",
			Help: "Reloads of the configuration, by result."}, []string{"result"}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_config_last_reload_ok",
			Help: "1 if the configuration file was good when it was last read; 0: an older one is in force."}),
		refreshes: prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_intercept_refresh_failures_total",
			Help: "Refreshes of the interception that failed; the log names the consequence."}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gradproxy_sessions_lost_total",
			Help: "Sessions with peers that ended with their streams reset."}, []string{"peer"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gradproxy_carrier_failures_total",
			Help: "Carriers of tunnels that could not be set up, or were lost; peer is unknown where it did not prove its identity."}, []string{"peer", "stage"}),
	}
	for _, result := range []string{"ok", "failed"} {
		c.reloads.WithLabelValues(result)
	}
	c.loaded.Set(1)
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_build_info", Help: "1; the labels name the running version and its Go release.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()}})
	info.Set(1)
	reg.MustRegister(c.reloads, c.loaded, c.refreshes, c.lost, c.failed, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return c
}

func (c *counts) reloaded(ok bool) {
	if ok {
		c.reloads.WithLabelValues("ok").Inc()
		c.loaded.Set(1)
		return
	}
	c.reloads.WithLabelValues("failed").Inc()
	c.loaded.Set(0)
}

// expect begins the series of peers' rare events at 0, so that the first one is a rise.
func (c *counts) expect(peers []config.Peer) {
	for _, p := range peers {
		c.lost.WithLabelValues(p.Name)
		for _, stage := range []string{"setup", "established"} {
			c.failed.WithLabelValues(p.Name, stage)
		}
	}
	c.failed.WithLabelValues("unknown", "setup")
}

// events counts the events of tunnels, which log them themselves.
func (c *counts) events() tunnel.Events {
	return tunnel.Events{
		CarrierFailed: func(peer string, err error) {
			if peer == "" {
				peer = "unknown"
			}
			c.failed.WithLabelValues(peer, "setup").Inc()
		},
		CarrierDown: func(peer string, err error) { c.failed.WithLabelValues(peer, "established").Inc() },
		SessionLost: func(peer string, reason error) { c.lost.WithLabelValues(peer).Inc() },
	}
}

// tunnelCollector shows the snapshot that a tunnel gives of each peer.
type tunnelCollector struct {
	tunnel interface{ Stats() []tunnel.PeerStats }
	money  *ledger
}

// peerMetrics lists the metrics of a peer.
var peerMetrics = []struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*tunnel.PeerStats) float64
}{
	{peerDesc("peer_up", "1 if a tunnel to the peer is up, and no outage is on."), prometheus.GaugeValue,
		func(s *tunnel.PeerStats) float64 { return is(s.Session && s.Carriers > 0 && s.Outage == 0) }},
	{peerDesc("peer_outage_seconds", "For how long nothing has come back from the peer although bytes wait for it, or no carrier was left; 0: there is no outage."), prometheus.GaugeValue,
		func(s *tunnel.PeerStats) float64 { return s.Outage.Seconds() }},
	{peerDesc("peer_carriers", "Carriers of the tunnel to the peer."), prometheus.GaugeValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Carriers) }},
	{peerDesc("peer_carriers_bbr", "Of these, the ones under BBR: TCP's of this kernel, or the proxy's own over datagrams. Without it lost packets make a tunnel slow."), prometheus.GaugeValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.BBR) }},
	{peerDesc("peer_carriers_datagrams", "Of the carriers, the ones over UDP."), prometheus.GaugeValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Datagrams) }},
	{peerDesc("peer_streams", "Streams that are open with the peer."), prometheus.GaugeValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Streams) }},
	{peerDesc("peer_rtt_seconds", "Smallest of the last round-trip times; 0: unknown, or an outage."), prometheus.GaugeValue,
		func(s *tunnel.PeerStats) float64 { return s.RTT.Seconds() }},
	{peerDesc("peer_goodput_bytes_per_second", "Most that the carriers have delivered of late; 0: unknown, or an outage."), prometheus.GaugeValue,
		func(s *tunnel.PeerStats) float64 { return s.Rate }},
	{peerDesc("peer_sessions_total", "Sessions that were begun with the peer."), prometheus.CounterValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Sessions) }},
	{peerDesc("peer_outages_total", "Outages that have begun: nothing came back from the peer although bytes waited, or no carrier was left."), prometheus.CounterValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Outages) }},
	{peerDesc("peer_replayed_bytes_total", "Bytes that were sent again after the loss of a carrier."), prometheus.CounterValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Replayed) }},
	{peerDesc("peer_sent_bytes_total", "Bytes of streams that were handed to carriers, replays left out."), prometheus.CounterValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Sent) }},
	{peerDesc("peer_received_bytes_total", "Bytes of streams that were taken from carriers, duplicates left out."), prometheus.CounterValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Received) }},
	{peerDesc("peer_padding_bytes_total", "Bytes that were sent to the peer for tunnel.pad alone."), prometheus.CounterValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Padding) }},
	{peerDesc("peer_network_sent_bytes_total", "Bytes of IP packets that carriers sent to the peer, as a link carries them: with TLS, headers, acknowledgements, and bytes that were sent again; 0: the kernel does not tell."), prometheus.CounterValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Network.Sent) }},
	{peerDesc("peer_network_received_bytes_total", "The same from the peer, without bytes that came twice."), prometheus.CounterValue,
		func(s *tunnel.PeerStats) float64 { return float64(s.Network.Received) }},
}

func peerDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gradproxy_"+name, help, []string{"peer"}, nil)
}

var choiceDesc = prometheus.NewDesc("gradproxy_peer_choice", "1: with tunnel.carrier: auto, the carrier that takes the bulk to the peer, and the reason in a word.", []string{"peer", "carrier", "reason"}, nil)

func is(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe lists the metrics.
func (t *tunnelCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range peerMetrics {
		ch <- m.desc
	}
	ch <- choiceDesc
	for _, d := range []*prometheus.Desc{priceDesc, spentDesc, directDesc, savedDesc} {
		ch <- d
	}
}

// Collect asks the tunnel once for all of them.
func (t *tunnelCollector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range t.tunnel.Stats() {
		for _, m := range peerMetrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&p), p.Peer)
		}
		t.money.collect(ch, &p)
		if p.Choice.Carrier != "" {
			ch <- prometheus.MustNewConstMetric(choiceDesc, prometheus.GaugeValue, 1, p.Peer, p.Choice.Carrier, p.Choice.Reason)
		}
	}
}
