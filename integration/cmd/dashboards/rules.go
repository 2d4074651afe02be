package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// A group is a group of rules, as Prometheus reads it.
type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

// A rule records a series or raises an alert.
type rule struct {
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

// writeRules writes a file of rules.
func writeRules(groups []group) ([]byte, error) {
	text, err := yaml.MarshalWithOptions(map[string][]group{"groups": groups}, yaml.IndentSequence(true), yaml.UseLiteralStyleIfMultiline(true))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("# Made by go run ./integration/cmd/dashboards: change the rules there.\n")
	b.Write(text)
	return b.Bytes(), nil
}

// recorded returns rules for sums that take long to compute over days.
func recorded() []group {
	five := func(by, selector string) string {
		return fmt.Sprintf("sum by (%s) (rate(gradproxy_%s[5m]))", by, selector)
	}
	const link = "instance, peer"
	app := five(link, "raw_bytes_total") + " + " + five(link, "delivered_bytes_total")
	network := five(link, "peer_network_sent_bytes_total") + " + " + five(link, "peer_network_received_bytes_total")
	r := func(name, expr string) rule { return rule{Record: name, Expr: expr} }
	return []group{{"gradproxy", []rule{
		r("instance_peer:gradproxy_app_bytes:rate5m", app),
		r("instance_peer:gradproxy_link_bytes:rate5m", network),
		r("instance_peer:gradproxy_link_ratio:rate5m", "instance_peer:gradproxy_app_bytes:rate5m / (instance_peer:gradproxy_link_bytes:rate5m > 0)"),
		r("instance_training_job:gradproxy_raw_bytes:rate5m", five("instance, training_job", "raw_bytes_total")),
		r("instance_training_job:gradproxy_wire_bytes:rate5m", five("instance, training_job", "wire_bytes_total")),
		r("instance_codec_role:gradproxy_raw_bytes:rate5m", five("instance, codec, role", "raw_bytes_total")),
		r("instance_codec_role:gradproxy_wire_bytes:rate5m", five("instance, codec, role", "wire_bytes_total")),
		r("instance_peer_currency:gradproxy_egress_spent:rate5m", five("instance, peer, currency", "peer_egress_spent_total")),
		r("instance_peer_currency:gradproxy_egress_saved:rate5m",
			five("instance, peer, currency", "peer_egress_direct_total")+" - "+five("instance, peer, currency", "peer_egress_spent_total")),
		r("instance_codec_role:gradproxy_residual_ratio:mean5m", five("instance, codec, role", "residual_ratio_sum")+" / "+five("instance, codec, role", "residual_ratio_count")),
		r("instance_codec_role:gradproxy_relative_error:mean5m", five("instance, codec, role", "relative_error_sum")+" / "+five("instance, codec, role", "relative_error_count")),
	}}}
}

// A condition compares a quantity with a bound. The quantity has a value whether the condition holds or not.
type condition struct{ quantity, compared string }

// An alert is raised while all its conditions hold.
type alert struct {
	name, severity, wait string // how long they must hold
	summary              string // for people, in one line; it may use {{ $labels.NAME }} and {{ $value }}
	when                 []condition
}

func (a alert) rule() rule {
	var lines []string
	for _, c := range a.when {
		lines = append(lines, c.quantity+" "+c.compared)
	}
	return rule{Alert: "Gradproxy" + a.name, Expr: strings.Join(lines, "\nand on (instance, peer)\n"), For: a.wait,
		Labels: map[string]string{"severity": a.severity}, Annotations: map[string]string{"summary": a.summary}}
}

// grows is the condition that a counter has risen within a time.
func grows(selector, within string) []condition {
	return []condition{{"increase(gradproxy_" + selector + "[" + within + "])", "> 0"}}
}

// is is one condition on a metric.
func is(selector, compared string) []condition {
	return []condition{{"gradproxy_" + selector, compared}}
}

// alerts returns the alerts of the table "Worth an alert" in docs/operations.md.
func alerts() []group {
	const page, ticket = "critical", "warning"
	g := group{Name: "gradproxy-alerts"}
	for _, a := range []alert{
		{"PeerDown", page, "1m", "{{ $labels.instance }} has no tunnel to {{ $labels.peer }}, or an outage", is("peer_up", "== 0")},
		{"Outage", page, "", "nothing has come back from {{ $labels.peer }} for {{ $value }} s", is("peer_outage_seconds", "> 5")},
		{"Outages", ticket, "", "the link to {{ $labels.peer }} fails again and again", []condition{{"increase(gradproxy_peer_outages_total[15m])", "> 3"}}},
		{"InterceptNotRefreshed", page, "", "rules of {{ $labels.instance }} are not refreshed: new connections soon go by on_death, or new addresses of the host are not known; see the log", grows("intercept_refresh_failures_total", "5m")},
		{"BadConfiguration", ticket, "", "the configuration of {{ $labels.instance }} is bad, and an older one in force", is("config_last_reload_ok", "== 0")},
		{"ConnectionsRefused", ticket, "", "connections to {{ $labels.peer }} are refused: {{ $labels.result }}", grows(`opens_total{result!~"ok|direct|taken over"}`, "5m")},
		{"SessionLost", page, "", "connections with {{ $labels.peer }} were reset, since their session was lost", grows("sessions_lost_total", "10m")},
		{"ResidualsNotSaved", ticket, "", "residuals of {{ $labels.instance }} were saved {{ $value }} s ago", is("state_age_seconds", "> 120")},
		{"ResidualsFailed", ticket, "", "state of {{ $labels.instance }} could not be saved: make room in state.dir; the log names the file", grows("state_save_failures_total", "10m")},
		{"ResidualsRefused", ticket, "", "a file of residuals of {{ $labels.instance }} was damaged or changed, and moved aside", is("state_refused_total", "> 0")},
		{"ReplicasDrift", ticket, "30m", "the residuals of aggregates by {{ $labels.codec }} are {{ $value }} times as large as an hour ago", []condition{{
			`instance_codec_role:gradproxy_residual_ratio:mean5m{role="aggregate"} / (instance_codec_role:gradproxy_residual_ratio:mean5m{role="aggregate"} offset 1h)`, "> 1.5"}}},
		{"ReferencesTooSmall", ticket, "10m", "values that peers hold are evicted: raise references at both sites of {{ $labels.instance }}", grows(`shared_values_total{how="evicted"}`, "5m")},
		{"WrongReference", page, "", "the two ends held different values: a defect of gradproxy, please report the log", is("wrong_references_total", "> 0")},
		{"ParserGaveUp", ticket, "", "connections of {{ $labels.protocol }} carry bytes outside it, and travel as they are", grows(`parsers_gave_up_total{protocol!=""}`, "10m")},
		{"ParserSpent", ticket, "", "connections of {{ $labels.peer }} cost their parsers too much {{ $labels.of }}", grows("parsers_spent_total", "10m")},
		{"GuardActive", ticket, "30m", "{{ $labels.codec }} is too coarse for tensors of role {{ $labels.role }}: choose a finer codec", grows("guard_exact_total", "10m")},
		{"JobDoubted", ticket, "", "a sum of a job with sums: gradients is no gradient ({{ $labels.reason }})", grows("jobs_doubted_total", "10m")},
		{"CallsContradicted", page, "", "a process sent something else than it was seen to call", []condition{{`sum by (instance) (gradproxy_tensor_values_total{evidence="calls contradicted"})`, "> 0"}}},
		{"ProbeEnded", ticket, "", "the process that probes for {{ $labels.instance }} has ended: sums that it proved travel exactly until a restart or an upgrade", is("probe_ended", "> 0")},
		{"ProbeLate", ticket, "", "the process that probes for {{ $labels.instance }} has not answered in time for {{ $value }} s: sums whose calls it would tell travel exactly meanwhile", is("probe_late_seconds", "> 30")},
		{"ProbeOftenLate", ticket, "", "the process that probes for {{ $labels.instance }} is late again and again: sums whose calls it would tell travel exactly for a while each time", []condition{{"increase(gradproxy_probe_timeouts_total[10m])", "> 3"}}},
		{"JobDrifted", ticket, "", "weights of job {{ $labels.training_job }} drifted from the server's and travel exactly for a while: choose a finer codec for role state", grows("jobs_drifted_total", "10m")},
		{"BudgetWillNotLast", ticket, "15m", "the day's traffic of {{ $labels.peer }}{{ $labels.training_job }} will be {{ $value }} times its budget", []condition{{"gradproxy_budget_projected_bytes / gradproxy_budget_bytes", "> 1"}}},
		{"BudgetSpent", page, "", "the day's traffic of {{ $labels.peer }}{{ $labels.training_job }} is {{ $value }} times its budget", []condition{{"gradproxy_budget_used_bytes / gradproxy_budget_bytes", "> 1"}}},
		{"LinkNotSmaller", ticket, "30m", "the link to {{ $labels.peer }} carries hardly less than its apps send: see /tensors for the reason", []condition{
			{"instance_peer:gradproxy_link_ratio:rate5m", "< 1.05"}, {"instance_peer:gradproxy_app_bytes:rate5m", "> 1e+06"}}},
	} {
		g.Rules = append(g.Rules, a.rule())
	}
	return []group{g}
}
