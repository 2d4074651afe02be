package main

import "fmt"

// rate is the rise of counters per second, summed up by labels.
func rate(by, selector string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, selector)
}

// rise is the rise of counters over the dashboard's whole time.
func rise(selector string) string { return fmt.Sprintf("sum(increase(%s[$__range]))", selector) }

// mean is the mean of the recent observations of histograms, by labels.
func mean(by, name string, matchers ...string) string {
	return rate(by, metric(name+"_sum", matchers...)) + " / " + rate(by, metric(name+"_count", matchers...))
}

// quantile is a quantile of the recent observations of histograms, by labels.
func quantile(q, by, name string, matchers ...string) string {
	return fmt.Sprintf("histogram_quantile(%s, %s)", q, rate("le, "+by, metric(name+"_bucket", matchers...)))
}

// A crossing is one way of the bytes across links, as apps and as links have it.
type crossing struct{ app, link string }

var (
	sent = crossing{metric("raw_bytes_total", peers), metric("peer_network_sent_bytes_total", peers)}
	got  = crossing{metric("delivered_bytes_total", peers), metric("peer_network_received_bytes_total", peers)}
)

func overview() *board {
	b := newBoard("gradproxy-overview", "gradproxy: overview", "Bytes and money that gradproxy saves on the links between sites.")
	b.number("Ratio of the links", "none", "Bytes that apps sent and got, over the bytes that links carried for them, both ways, with all headers.",
		fmt.Sprintf("(%s + %s) / (%s + %s)", rise(sent.app), rise(got.app), rise(sent.link), rise(got.link)))
	b.number("Bytes saved", "decbytes", "Bytes of apps that links did not carry, both ways.",
		fmt.Sprintf("%s + %s - %s - %s", rise(sent.app), rise(got.app), rise(sent.link), rise(got.link)))
	b.number("Bytes of apps, in all", "decbytes", "Since the proxies began, both ways: the counters themselves, where the panels of a time are estimates of their rise.",
		fmt.Sprintf("sum(%s) + sum(%s)", sent.app, got.app))
	b.number("Bytes of links, in all", "decbytes", "Since the proxies began, both ways, with all headers, as a bill counts them.",
		fmt.Sprintf("sum(%s) + sum(%s)", sent.link, got.link))
	b.number("Money saved", "none", "In the currency of the configuration, where peers have a price; egress of these sites only.",
		fmt.Sprintf("sum by (currency) (increase(%s[$__range])) - sum by (currency) (increase(%s[$__range]))",
			metric("peer_egress_direct_total", peers), metric("peer_egress_spent_total", peers)))
	b.number("Money spent", "none", "The price of the bytes that links carried away from these sites.",
		fmt.Sprintf("sum by (currency) (increase(%s[$__range]))", metric("peer_egress_spent_total", peers)))
	b.number("Peers up", "none", "Tunnels that are up, without an outage.", "sum("+metric("peer_up", peers)+")")
	b.number("Connections", "none", "Connections of apps that are carried now.", "sum("+metric("connections", peers)+")")
	b.graph("Sent: apps and links", "Bps", "The same bytes before and after: the area between is saved.",
		line{"apps to {{peer}}", rate("peer", sent.app)}, line{"link to {{peer}}", rate("peer", sent.link)})
	b.graph("Received: apps and links", "Bps", "", line{"apps from {{peer}}", rate("peer", got.app)}, line{"link from {{peer}}", rate("peer", got.link)})
	b.graph("Ratio of the link", "none", "Bytes of apps over bytes of the link, both ways together.", line{"{{peer}}",
		fmt.Sprintf("(%s + %s) / (%s + %s)", rate("peer", sent.app), rate("peer", got.app), rate("peer", sent.link), rate("peer", got.link))})
	b.graph("Sent by jobs", "Bps", "Bytes that apps sent; the empty name is traffic of no configured job.",
		line{"{{training_job}}", rate("training_job", sent.app)})
	b.graph("Links' bytes by job", "Bps", "Packets of IP, with all headers, shared out among jobs each second by the bytes that tunnels were handed, or that were delivered.",
		line{"to {{peer}}: {{training_job}}", rate("peer, training_job", metric("job_network_sent_bytes_total", peers))},
		line{"from {{peer}}: {{training_job}}", rate("peer, training_job", metric("job_network_received_bytes_total", peers))})
	b.graph("Ratio of coding by job", "none", "Raw bytes over the bytes that tunnels were handed for them; packets' headers are not in it.",
		line{"{{training_job}}", rate("training_job", metric("raw_bytes_total", peers)) + " / " + rate("training_job", metric("wire_bytes_total", peers))})
	b.graph("Money an hour", "none", "", line{"spent, {{peer}} ({{currency}})", "3600 * " + rate("peer, currency", metric("peer_egress_spent_total", peers))},
		line{"without gradproxy, {{peer}} ({{currency}})", "3600 * " + rate("peer, currency", metric("peer_egress_direct_total", peers))})
	return b
}

func links() *board {
	b := newBoard("gradproxy-links", "gradproxy: links", "Tunnels and their carriers.")
	b.graph("Up", "none", "1: the tunnel is up, and no outage is on.", line{"{{instance}} to {{peer}}", metric("peer_up", peers)})
	b.graph("Outages", "s", "For how long nothing has come back although bytes wait.", line{"{{instance}} to {{peer}}", metric("peer_outage_seconds", peers)})
	b.graph("Round-trip time", "s", "The smallest of the last ones; 0 in an outage.", line{"{{instance}} to {{peer}}", metric("peer_rtt_seconds", peers)})
	b.graph("Goodput", "Bps", "The most that carriers have delivered of late; 0 in an outage.", line{"{{instance}} to {{peer}}", metric("peer_goodput_bytes_per_second", peers)})
	b.graph("Bytes of links", "Bps", "Packets of IP, as a bill counts them.", line{"to {{peer}}", rate("peer", sent.link)}, line{"from {{peer}}", rate("peer", got.link)})
	b.graph("Overhead of links", "percentunit", "Headers, acknowledgements and repeated bytes: the part of the link's bytes that is not of streams.",
		line{"to {{peer}}", "1 - " + rate("peer", metric("peer_sent_bytes_total", peers)) + " / " + rate("peer", sent.link)})
	b.graph("Carriers", "none", "", line{"{{instance}} to {{peer}}", metric("peer_carriers", peers)},
		line{"under BBR, {{instance}} to {{peer}}", metric("peer_carriers_bbr", peers)}, line{"over UDP, {{instance}} to {{peer}}", metric("peer_carriers_datagrams", peers)})
	b.graph("Sent again and padding", "Bps", "", line{"again to {{peer}}", rate("peer", metric("peer_replayed_bytes_total", peers))},
		line{"padding to {{peer}}", rate("peer", metric("peer_padding_bytes_total", peers))})
	b.graph("Faults", "none", "Outages that have begun, carriers that failed, and sessions that were lost, an hour.",
		line{"outages, {{peer}}", "3600 * " + rate("peer", metric("peer_outages_total", peers))},
		line{"carriers, {{peer}}", "3600 * " + rate("peer", metric("carrier_failures_total", instances))},
		line{"sessions, {{peer}}", "3600 * " + rate("peer", metric("sessions_lost_total", peers))})
	return b
}

func coding() *board {
	const by = "codec, role"
	b := newBoard("gradproxy-coding", "gradproxy: coding", "How tensors travel, what coding costs, and how much is lost.")
	b.graph("Sent by codec and role", "Bps", "Bytes of apps.", line{"{{codec}}, {{role}}", rate(by, metric("raw_bytes_total", peers))})
	b.graph("Coded by codec and role", "Bps", "Bytes that tunnels were handed.", line{"{{codec}}, {{role}}", rate(by, metric("wire_bytes_total", peers))})
	b.graph("Ratio by codec and role", "none", "Of the two; packets' headers are not in it.",
		line{"{{codec}}, {{role}}", rate(by, metric("raw_bytes_total", peers)) + " / " + rate(by, metric("wire_bytes_total", peers))})
	b.graph("Relative error", "percentunit", "Norm of the loss of an encoding over the norm of the encoded value.", line{"{{codec}}, {{role}}", mean(by, "relative_error", instances)})
	b.graph("Residual", "percentunit", "Norm of the residual over the norm of the value: how far receivers are behind.",
		line{"mean of {{codec}}, {{role}}", mean(by, "residual_ratio", instances)}, line{"99 % of {{codec}}, {{role}}", quantile("0.99", by, "residual_ratio", instances)})
	b.graph("Fell back", "cps", "Tensor values and blocks that were not coded as a rule says, by reason.",
		line{"{{reason}}: {{codec}}, {{role}}", "topk(12, " + rate("reason, codec, role", metric("verbatim_fallbacks_total", instances)) + ")"})
	b.graph("Time to encode a block", "s", "", line{"median of {{codec}}, {{role}}", quantile("0.5", by, "encode_seconds", instances)},
		line{"99 % of {{codec}}, {{role}}", quantile("0.99", by, "encode_seconds", instances)})
	b.graph("Time to decode a block", "s", "", line{"median of {{codec}}, {{role}}", quantile("0.5", by, "decode_seconds", instances)},
		line{"99 % of {{codec}}, {{role}}", quantile("0.99", by, "decode_seconds", instances)})
	b.graph("Cores that code", "none", "Seconds of encoding and decoding in a second.", line{"encode", rate("instance", metric("encode_seconds_sum", instances))},
		line{"decode", rate("instance", metric("decode_seconds_sum", instances))})
	b.graph("Values by evidence", "cps", "Values of tensors, by role and the evidence for it.", line{"{{role}}: {{evidence}}", rate("role, evidence", metric("tensor_values_total", instances))})
	b.graph("Shared values", "cps", "How values come to be held by peers.", line{"{{how}}", rate("how", metric("shared_values_total", instances))})
	b.graph("Shadow mode: bytes by candidate", "decbytes", "Bytes that tunnels would have been handed since the proxies began, had a candidate been in force, and the ones that they were handed. Empty without candidates.",
		line{"{{codec}}", "sum by (codec) (" + metric("shadow_predicted_bytes", peers) + ")"},
		line{"as now", "sum(" + metric("wire_bytes_total", peers) + " and on (instance, peer, training_job, role) " + metric("shadow_predicted_bytes", peers) + ")"})
	b.graph("Shadow mode: money by candidate", "none", "The price of these bytes. Empty without candidates, or without a price.",
		line{"{{codec}} ({{currency}})", "sum by (codec, currency) (" + metric("shadow_predicted_egress", peers) + ")"})
	b.graph("Guard and doubt", "cps", "Blocks that travelled exactly since receivers were too far behind, and jobs that lose nothing more.",
		line{"guard: {{codec}}, {{role}}", rate(by, metric("guard_exact_total", instances))}, line{"doubted: {{reason}}", rate("reason", metric("jobs_doubted_total", instances))})
	return b
}

func process() *board {
	b := newBoard("gradproxy-process", "gradproxy: process", "Connections, and what the proxies take of their hosts.")
	b.graph("Connections", "none", "", line{"{{peer}}, client {{client}}", "sum by (peer, client) (" + metric("connections", peers) + ")"})
	b.graph("Opened", "cps", "Connections that apps asked for, by result.", line{"{{result}}", rate("result", metric("opens_total", peers))})
	b.graph("Ended", "cps", "", line{"{{how}}", rate("how", metric("connections_ended_total", peers))})
	b.graph("Processor", "none", "Cores.", line{"{{instance}}", fmt.Sprintf("rate(process_cpu_seconds_total{%s}[$__rate_interval]) and on (instance) gradproxy_build_info", instances)})
	b.graph("Memory", "bytes", "Resident.", line{"{{instance}}", fmt.Sprintf("process_resident_memory_bytes{%s} and on (instance) gradproxy_build_info", instances)})
	b.graph("Descriptors", "none", "", line{"{{instance}}", fmt.Sprintf("process_open_fds{%s} and on (instance) gradproxy_build_info", instances)})
	b.graph("Parsers", "cps", "Directions that stopped being understood, and connections that cost their parsers too much.",
		line{"gave up: {{protocol}}", rate("protocol", metric("parsers_gave_up_total", instances, `protocol!=""`))}, line{"spent {{of}}: {{peer}}", rate("of, peer", metric("parsers_spent_total", peers))})
	b.graph("Process that probes", "s", "How long it has not answered in time, and questions per second without an answer in time. Sums whose calls it would tell travel exactly meanwhile.",
		line{"late: {{instance}}", metric("probe_late_seconds", instances)}, line{"unanswered: {{instance}}", rate("instance", metric("probe_timeouts_total", instances))}, line{"ended: {{instance}}", metric("probe_ended", instances)})
	b.graph("Residuals forgotten", "cps", "", line{"tensors", rate("instance", metric("tensors_forgotten_total", instances))}, line{"rows", rate("instance", metric("rows_forgotten_total", instances))})
	b.graph("Configuration", "none", "1: the file was good when it was last read.", line{"{{instance}}", metric("config_last_reload_ok", instances)})
	return b
}
