// Package adminclient asks a running proxy over its admin address: whether it is ready, and for its traffic.
package adminclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/history"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

const (
	// timeout bounds one question.
	timeout = 10 * time.Second
	// maxAnswer bounds an answer: the metrics of a thousand peers take 2 MiB.
	maxAnswer = 64 << 20
	// again is the time between two questions of Await.
	again = 250 * time.Millisecond
)

// A Proxy is a running proxy, known by its admin address.
type Proxy struct {
	address string
	base    string
	client  *http.Client
}

// At returns the proxy whose admin address is "host:port" or "unix:/path". An unspecified host stands for this host.
func At(address string) *Proxy {
	p := &Proxy{address: address, client: &http.Client{Timeout: timeout}}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		p.base = "http://localhost"
		p.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}}
		return p
	}
	if host, port, err := net.SplitHostPort(address); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			address = net.JoinHostPort("localhost", port)
		}
	}
	p.base = "http://" + address
	p.client.Transport = &http.Transport{} // no proxy of the environment: the address is on this host
	return p
}

// Close closes idle connections to the proxy.
func (p *Proxy) Close() { p.client.CloseIdleConnections() }

// A Status is the traffic of a proxy and the state of its peers. Its names are stable.
type Status struct {
	admin.Readiness
	Connections int64    `json:"connections"`     // of apps, that are carried now
	Raw         int64    `json:"raw_bytes"`       // that apps have sent since the start
	Wire        int64    `json:"wire_bytes"`      // that were handed to tunnels for them
	Delivered   int64    `json:"delivered_bytes"` // that were delivered to apps
	Network     Traffic  `json:"network"`         // of the links to all peers
	Uptime      float64  `json:"uptime_seconds"`
	Peers       []Peer   `json:"peers"` // ordered by name
	Budgets     []Budget `json:"budgets,omitempty"`
}

// A Peer is a peer in a Status.
type Peer struct {
	Name        string  `json:"name"`
	Up          bool    `json:"up"`             // a tunnel is up, and no outage is on
	Outage      float64 `json:"outage_seconds"` // 0: none
	Carriers    int     `json:"carriers"`
	Datagrams   int     `json:"carriers_datagrams"` // of these, over UDP
	Choice      string  `json:"choice,omitempty"`   // with carrier auto: the carrier of bulk, and why, as "dtls: faster"
	RTT         float64 `json:"rtt_seconds"`        // 0: unknown
	Connections int64   `json:"connections"`
	Raw         int64   `json:"raw_bytes"`      // that apps have sent to it
	Wire        int64   `json:"wire_bytes"`     // that were handed to the tunnel for them
	Sent        int64   `json:"sent_bytes"`     // of streams, replays left out
	Received    int64   `json:"received_bytes"` // of streams, duplicates left out
	Replayed    int64   `json:"replayed_bytes"` // after the loss of a carrier
	Delivered   int64   `json:"delivered_bytes"`
	Network     Traffic `json:"network"`         // of the link
	Money       *Money  `json:"money,omitempty"` // nil: the configuration names no price
}

// A Budget bounds the bytes that links carry in a day (UTC), to a peer or for a job.
type Budget struct {
	Peer      string `json:"peer,omitempty"`
	Job       string `json:"job,omitempty"`
	Limit     int64  `json:"bytes"`
	Used      int64  `json:"used_bytes"`
	Projected int64  `json:"projected_bytes"` // of the whole day, at the rate of the last hour
	Stage     int    `json:"stage"`           // codecs of budget.then that have had their turn
}

// Money is the price of the bytes that a link carried to a peer.
type Money struct {
	Currency string  `json:"currency"`
	Spent    float64 `json:"spent"`
	Saved    float64 `json:"saved"` // negative: a loss
}

// Traffic counts bytes of IP packets, as links carry them and bills count them. It is zero if the kernel does not tell
// them.
type Traffic struct {
	Sent     int64 `json:"sent_bytes"`
	Received int64 `json:"received_bytes"`
}

// Ratio returns how many times fewer bytes a link carries, both ways together, than the apps' connections; 0: unknown.
func (t Traffic) Ratio(raw, delivered int64) float64 {
	if t.Sent+t.Received == 0 {
		return 0
	}
	return float64(raw+delivered) / float64(t.Sent+t.Received)
}

// Ready asks whether the proxy is ready; the named checks do not count.
func (p *Proxy) Ready(ctx context.Context, exclude ...string) (*admin.Readiness, error) {
	r := &admin.Readiness{}
	body, err := p.get(ctx, "/readyz?"+url.Values{"exclude": exclude}.Encode(), http.StatusOK, http.StatusServiceUnavailable)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("%s: the answer is not the one of a gradproxy of this version: %w", p.address, err)
	}
	return r, nil
}

// Await asks whether the proxy is ready until it is, or until ctx ends. It returns the last answer. The error is nil if
// there was an answer, whether the proxy is ready or not.
func (p *Proxy) Await(ctx context.Context, exclude ...string) (*admin.Readiness, error) {
	var last *admin.Readiness
	var lastErr error
	for {
		r, err := p.Ready(ctx, exclude...)
		if ctx.Err() != nil && (last != nil || lastErr != nil) {
			return last, lastErr // ctx has cut off the question
		}
		if last, lastErr = r, err; err == nil && r.Ready {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return last, lastErr
		case <-time.After(again):
		}
	}
}

// Status asks for the traffic of the proxy and the state of its peers.
func (p *Proxy) Status(ctx context.Context) (*Status, error) {
	ready, err := p.Ready(ctx)
	if err != nil {
		return nil, err
	}
	body, err := p.get(ctx, "/metrics", http.StatusOK)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return nil, fmt.Errorf("%s: /metrics: %w", p.address, err)
	}
	return statusOf(*ready, families, time.Now()), nil
}

// Tensors asks for the tensors of which most bytes were sent, at most limit; 0: all. count is the number of all
// tensors.
func (p *Proxy) Tensors(ctx context.Context, limit int) (tensors []proxy.TensorInfo, count int, err error) {
	path := "/tensors"
	if limit > 0 {
		path += "?limit=" + strconv.Itoa(limit)
	}
	body, err := p.get(ctx, path, http.StatusOK)
	if err != nil {
		return nil, 0, err
	}
	var answer struct {
		Tensors []proxy.TensorInfo
		Count   int
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, 0, fmt.Errorf("%s: the answer is not the one of a gradproxy of this version: %w", p.address, err)
	}
	return answer.Tensors, max(answer.Count, len(answer.Tensors)), nil
}

// Live asks for the present state, as the page shows it.
func (p *Proxy) Live(ctx context.Context) (*admin.Live, error) {
	body, err := p.get(ctx, "/live", http.StatusOK)
	if err != nil {
		return nil, err
	}
	l := &admin.Live{}
	if err := json.Unmarshal(body, l); err != nil {
		return nil, fmt.Errorf("%s: the answer is not the one of a gradproxy of this version: %w", p.address, err)
	}
	return l, nil
}

// History asks for the history in slots of so many seconds, which is one of history.Steps.
func (p *Proxy) History(ctx context.Context, step int) (*history.Table, error) {
	body, err := p.get(ctx, "/history?step="+strconv.Itoa(step), http.StatusOK)
	if err != nil {
		return nil, err
	}
	t := &history.Table{}
	if err := json.Unmarshal(body, t); err != nil {
		return nil, fmt.Errorf("%s: the answer is not the one of a gradproxy of this version: %w", p.address, err)
	}
	return t, nil
}

// Tensor asks for a tensor by its id from Tensors, with its explanation and its history. It returns nil if the tensor
// is not listed any more.
func (p *Proxy) Tensor(ctx context.Context, id uint64) (*admin.Answer, error) {
	body, err := p.get(ctx, "/tensor?id="+strconv.FormatUint(id, 10), http.StatusOK, http.StatusNotFound)
	if err != nil || !json.Valid(body) {
		return nil, err // of one that is not listed the answer is a line for people
	}
	a := &admin.Answer{}
	if err := json.Unmarshal(body, a); err != nil {
		return nil, fmt.Errorf("%s: the answer is not the one of a gradproxy of this version: %w", p.address, err)
	}
	return a, nil
}

// Shadow asks for the results of candidates. It returns nil if the proxy has none.
func (p *Proxy) Shadow(ctx context.Context) (*trials.Report, error) {
	body, err := p.get(ctx, "/shadow", http.StatusOK, http.StatusNotFound)
	if err != nil {
		return nil, err
	}
	r := &trials.Report{}
	if !json.Valid(body) {
		return nil, nil // a line for people
	}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("%s: the answer is not the one of a gradproxy of this version: %w", p.address, err)
	}
	return r, nil
}

// Excerpts asks the running proxy to ask each peer for the peer's settings about the proxy's site. It also returns the
// name of that site.
func (p *Proxy) Excerpts(ctx context.Context) (site string, all []admin.Excerpt, err error) {
	body, err := p.get(ctx, "/peers", http.StatusOK)
	if err != nil {
		return "", nil, err
	}
	var answer struct {
		Site  string
		Peers []admin.Excerpt
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", nil, fmt.Errorf("%s: the answer is not the one of a gradproxy of this version: %w", p.address, err)
	}
	return answer.Site, answer.Peers, nil
}

func statusOf(ready admin.Readiness, families map[string]*dto.MetricFamily, now time.Time) *Status {
	s := &Status{Readiness: ready, Peers: []Peer{}}
	s.Raw, s.Wire = int64(total(families["gradproxy_raw_bytes_total"])), int64(total(families["gradproxy_wire_bytes_total"]))
	s.Delivered = int64(total(families["gradproxy_delivered_bytes_total"]))
	s.Budgets = budgetsOf(families)
	s.Connections = int64(total(families["gradproxy_connections"]))
	if began := total(families["process_start_time_seconds"]); began > 0 {
		s.Uptime = max(0, float64(now.UnixMilli())/1000-began)
	}
	for _, m := range families["gradproxy_peer_up"].GetMetric() {
		name := label(m, "peer")
		of := func(family string) float64 { return totalOf(families["gradproxy_"+family], name) }
		s.Peers = append(s.Peers, Peer{
			Name: name, Up: value(m) == 1, Outage: of("peer_outage_seconds"), Carriers: int(of("peer_carriers")), Datagrams: int(of("peer_carriers_datagrams")), Choice: choiceOf(families["gradproxy_peer_choice"], name), RTT: of("peer_rtt_seconds"),
			Connections: int64(of("connections")), Raw: int64(of("raw_bytes_total")), Wire: int64(of("wire_bytes_total")), Sent: int64(of("peer_sent_bytes_total")), Received: int64(of("peer_received_bytes_total")),
			Replayed: int64(of("peer_replayed_bytes_total")), Delivered: int64(of("delivered_bytes_total")),
			Network: Traffic{int64(of("peer_network_sent_bytes_total")), int64(of("peer_network_received_bytes_total"))},
		})
		s.Peers[len(s.Peers)-1].Money = moneyOf(families, name)
		last := s.Peers[len(s.Peers)-1].Network
		s.Network.Sent, s.Network.Received = s.Network.Sent+last.Sent, s.Network.Received+last.Received
	}
	slices.SortFunc(s.Peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// budgetsOf returns the budgets of peers and jobs.
func budgetsOf(families map[string]*dto.MetricFamily) (all []Budget) {
	for _, m := range families["gradproxy_budget_bytes"].GetMetric() {
		b := Budget{Peer: label(m, "peer"), Job: label(m, "training_job"), Limit: int64(value(m))}
		of := func(name string) float64 {
			for _, x := range families["gradproxy_budget_"+name].GetMetric() {
				if label(x, "peer") == b.Peer && label(x, "training_job") == b.Job {
					return value(x)
				}
			}
			return 0
		}
		b.Used, b.Projected, b.Stage = int64(of("used_bytes")), int64(of("projected_bytes")), int(of("stage"))
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b Budget) int { return cmp.Or(strings.Compare(a.Peer, b.Peer), strings.Compare(a.Job, b.Job)) })
	return all
}

// moneyOf returns the money of a peer; nil: it has no price.
func moneyOf(families map[string]*dto.MetricFamily, peer string) *Money {
	for _, m := range families["gradproxy_peer_egress_spent_total"].GetMetric() {
		if label(m, "peer") == peer {
			return &Money{label(m, "currency"), value(m), totalOf(families["gradproxy_peer_egress_saved"], peer)}
		}
	}
	return nil
}

// choiceOf returns the choice of the carrier to a peer; "": there is none.
func choiceOf(f *dto.MetricFamily, peer string) string {
	for _, m := range f.GetMetric() {
		if label(m, "peer") == peer {
			return label(m, "carrier") + ": " + label(m, "reason")
		}
	}
	return ""
}

func total(f *dto.MetricFamily) (sum float64) {
	for _, m := range f.GetMetric() {
		sum += value(m)
	}
	return sum
}

// totalOf is the total over the metrics of one peer.
func totalOf(f *dto.MetricFamily, peer string) (sum float64) {
	for _, m := range f.GetMetric() {
		if label(m, "peer") == peer {
			sum += value(m)
		}
	}
	return sum
}

// value returns the value of a counter or a gauge; the other is nil, whose value is 0.
func value(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// get returns the body of an answer with one of the codes.
func (p *Proxy) get(ctx context.Context, path string, codes ...int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("%q is no admin address: write host:port or unix:/path", p.address)
	}
	request.Header.Set("Accept", "application/json, text/plain;q=0.5")
	response, err := p.client.Do(request)
	if err != nil {
		return nil, p.unreachable(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, p.unreachable(err)
	}
	if !slices.Contains(codes, response.StatusCode) {
		return nil, fmt.Errorf("%s: GET %s: %s: is this the admin address of a gradproxy?", p.address, path, response.Status)
	}
	return body, nil
}

// unreachable gives the reason for a missing answer and the remedy, in one line.
func (p *Proxy) unreachable(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("no proxy answers at %s: start gradproxy run, or name the admin address of its configuration with -c or --admin", p.address)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%s: permission denied: ask as the proxy's user, or as a member of its group", p.address)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s does not answer in time: is the proxy stuck? Its log and /healthz tell", p.address)
	}
	return fmt.Errorf("%s: %w: is this the admin address of a gradproxy?", p.address, err)
}
