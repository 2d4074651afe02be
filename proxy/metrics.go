package proxy

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/trials"
	"github.com/gradproxy/gradproxy/tensor"
)

// Metrics counts the work of the proxy. Raw and wire bytes are two counters; ratios are computed from them. Labels come
// from fixed lists or from this side's configuration, never from a peer's bytes. A nil *Metrics counts nothing.
type Metrics struct {
	connections              *prometheus.GaugeVec
	opened                   *prometheus.CounterVec
	ended                    *prometheus.CounterVec
	raw, wire                *prometheus.CounterVec
	delivered                *prometheus.CounterVec
	refused                  *prometheus.CounterVec
	encode                   *prometheus.HistogramVec
	decode                   *prometheus.HistogramVec
	began                    *prometheus.CounterVec
	fallbacks                *prometheus.CounterVec
	doubted                  *prometheus.CounterVec
	given                    *prometheus.CounterVec
	spent                    *prometheus.CounterVec
	drift, relative          *prometheus.HistogramVec
	sparsity                 *prometheus.HistogramVec
	guardExact, guardTensors *prometheus.CounterVec
	forgotten                prometheus.Counter
	resumed                  prometheus.Counter
	lostRows                 prometheus.Counter
	values                   *prometheus.CounterVec
	wrong                    prometheus.Counter
	drifted                  *prometheus.CounterVec
	frames                   frame.Counts

	mu   sync.RWMutex
	sent map[sentKey]sentCounters // the counters of raw and wire bytes by their labels; one look-up here costs a third of two in the vectors
	got  map[gotKey]prometheus.Counter
}

// A gotKey has the labels of delivered bytes.
type gotKey struct{ peer, job string }

// A sentKey has the labels of raw and wire bytes.
type sentKey struct {
	peer, job, codec string
	role             tensor.Role
}

type sentCounters struct{ raw, wire prometheus.Counter }

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gradproxy_" + name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gradproxy_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(10e-6, 4, 9)}, []string{"codec", "role"})
		reg.MustRegister(h)
		return h
	}
	m := &Metrics{
		sent: map[sentKey]sentCounters{}, got: map[gotKey]prometheus.Counter{},
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gradproxy_connections",
			Help: "Connections of apps that are carried now, by peer and by the end that sent SYN."}, []string{"peer", "client"}),
		opened:    counter("opens_total", "Connections that apps asked for, by peer and by result.", "peer", "result"),
		ended:     counter("connections_ended_total", "Connections that ended, by peer and by how.", "peer", "how"),
		raw:       counter("raw_bytes_total", "Bytes that apps sent to peers, by job, by the codec under which they travelled and by role.", "peer", "training_job", "codec", "role"),
		wire:      counter("wire_bytes_total", "Bytes that were handed to the tunnel for the bytes of gradproxy_raw_bytes_total; gradproxy_peer_network_sent_bytes_total has the bytes on the link.", "peer", "training_job", "codec", "role"),
		delivered: counter("delivered_bytes_total", "Bytes that were delivered to apps, by peer and job.", "peer", "training_job"),
		refused:   counter("dials_refused_total", "Dials for peers that servers refused; each repetition of a dial counts.", "peer"),
		encode:    histogram("encode_seconds", "Time to encode one block."),
		decode:    histogram("decode_seconds", "Time to decode one block."),
		began:     counter("tensor_values_total", "Values of tensors that apps sent, by role and by the evidence for it.", "role", "evidence"),
		fallbacks: counter("verbatim_fallbacks_total", "Tensor values and blocks that were not coded as a rule says, by reason and by the codec that would have been used.", "reason", "codec", "role"),
		doubted:   counter("jobs_doubted_total", "Jobs that lose nothing more until they connect anew, since one of their sums was found to be no gradient, by reason.", "reason"),
		given:     counter("parsers_gave_up_total", "Directions of connections that stopped being understood, by protocol.", "protocol"),
	}
	m.spent = counter("parsers_spent_total", "Connections that travel verbatim since their parsers took too much, by peer and by resource: time or memory.", "peer", "of")
	m.drifted = counter("jobs_drifted_total", "Times that weights which peers hold were found to drift from the app's own, so that a job's weights travel exactly for a while.", "training_job")
	m.values = counter("shared_values_total", "Values of tensors that the peer holds: put whole, as a difference to the last one (difference) or to the peer's (reverse), referred to again, evicted.", "how")
	m.drift = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gradproxy_residual_ratio",
		Help:    "Norm of a block's residual over the norm of its value: how far receivers are behind.",
		Buckets: prometheus.ExponentialBuckets(1e-4, 4, 10)}, []string{"codec", "role"})
	m.relative = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gradproxy_relative_error",
		Help:    "Norm of the loss of a block's encoding over the norm of the encoded value, which feedback is part of.",
		Buckets: prometheus.ExponentialBuckets(1e-4, 4, 10)}, []string{"codec", "role"})
	m.sparsity = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gradproxy_sparsity",
		Help:    "Sparsity multiplier s of blocks whose codec adapts it, of one block in eight.",
		Buckets: []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9}}, []string{"codec", "role"})
	m.guardExact = counter("guard_exact_total", "Blocks that travelled exactly since receivers were too far behind.", "codec", "role")
	m.guardTensors = counter("guard_tensors_total", "Tensors that had such a block.", "codec", "role")
	m.forgotten = prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_tensors_forgotten_total",
		Help: "Tensors whose residual was dropped: their connection ended, they changed, or memory was needed."})
	m.resumed = prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_tensors_resumed_total",
		Help: "Tensors that went on with their residual in another connection, since the process showed that they are the same."})
	m.lostRows = prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_rows_forgotten_total",
		Help: "Rows of sparse tensors whose residual was dropped: their array changed, or memory was needed."})
	m.wrong = prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_wrong_references_total",
		Help: "Values whose reference differed at the two ends: a defect, which resets the stream of shared values."})
	for _, v := range []tensor.Verdict{tensor.Repeats, tensor.SingleSigned} { // as in expect
		m.doubted.WithLabelValues(v.String())
	}
	m.began.WithLabelValues(tensor.Unknown.String(), tensor.CallsContradicted.String())
	for _, how := range cache.SharedHow {
		m.values.WithLabelValues(how)
	}
	for k := range frame.Kinds() {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "gradproxy_frames_total", ConstLabels: prometheus.Labels{"kind": k.String()},
			Help: "Frames that peers sent, by kind."}, func() float64 { return float64(m.frames.Of(k)) }))
	}
	reg.MustRegister(m.connections, m.drift, m.relative, m.sparsity, m.forgotten, m.resumed, m.lostRows, m.wrong)
	return m
}

// openResults lists the results of openings, and spentOf the resources that a parser may take too much of.
var (
	openResults = []string{"ok", "direct", "peer down", "app left", "no answer", "failed", "denied", "refused", "unreachable", "taken over"}
	spentOf     = []string{"time", "memory"}
)

// endings lists how connections end, as passage.both says it.
var endings = []string{"closed", "reset by app", "reset by far app", "protocol", "memory", "tunnel"}

// expect begins the series at 0 that the settings lead to: a rise of a series that is not there before its first event
// is not seen, neither by an alert nor in a sum of bytes.
func (m *Metrics) expect(s *Settings, protocols []parser.Protocol) {
	if m == nil {
		return
	}
	var codings []policy.Coding
	for _, role := range tensor.Roles() { // whatever rules say, a tensor may travel like this
		codings = append(codings, policy.Coding{Codec: policy.Verbatim, Role: role}, policy.Coding{Codec: "lossless", Role: role})
	}
	if ruled, ok := s.Policy.(policy.Lister); ok {
		codings = append(codings, ruled.Codings()...)
	}
	for _, p := range s.Peers {
		for _, result := range openResults {
			m.opened.WithLabelValues(p.Name, result)
		}
		for _, how := range endings {
			m.ended.WithLabelValues(p.Name, how)
		}
		for _, client := range []parser.Side{parser.Client, parser.Server} {
			m.connections.WithLabelValues(p.Name, clientSide(client))
		}
		for _, of := range spentOf {
			m.spent.WithLabelValues(p.Name, of)
		}
		m.refused.WithLabelValues(p.Name)
		for _, job := range s.jobsWith(&p) {
			m.delivering(gotKey{p.Name, job})
			m.drifted.WithLabelValues(job)
			for _, c := range codings {
				m.Sent(p.Name, job, c.Codec, c.Role, 0, 0)
			}
		}
	}
	for _, c := range codings {
		m.expectCoding(c)
	}
	for _, p := range protocols {
		m.given.WithLabelValues(p.String())
	}
}

// clientSide writes on which side of the proxy's own site a client is.
func clientSide(own parser.Side) string {
	if own == parser.Client {
		return "here"
	}
	return "there"
}

// expectCoding begins the series of tensors of a role that travel by a codec.
func (m *Metrics) expectCoding(c policy.Coding) {
	for why := tensor.OK + 1; why.Valid(); why++ {
		m.fallbacks.WithLabelValues(why.String(), c.Codec, c.Role.String())
	}
	if c.Codec == policy.Verbatim {
		return
	}
	m.encode.WithLabelValues(c.Codec, c.Role.String())
	m.decode.WithLabelValues(coder.Name(c.Codec), c.Role.String()) // the peer's rules are like these, as a rule
	if c.Lossy {
		m.relative.WithLabelValues(c.Codec, c.Role.String())
	}
	if c.Lossy && c.Role != tensor.State {
		m.drift.WithLabelValues(c.Codec, c.Role.String())
		m.guardExact.WithLabelValues(c.Codec, c.Role.String())
		m.guardTensors.WithLabelValues(c.Codec, c.Role.String())
	}
}

// Sent counts raw bytes of an app for a peer that left as wire bytes.
func (m *Metrics) Sent(peer, job, codec string, role tensor.Role, raw, wire int) {
	if m != nil {
		c := m.sending(sentKey{peer, job, codec, role})
		c.raw.Add(float64(raw))
		c.wire.Add(float64(wire))
	}
}

// RawBytes returns how many bytes apps have sent to a peer.
func (m *Metrics) RawBytes(peer string) float64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	sum := 0.0
	for k, c := range m.sent {
		if k.peer == peer {
			sum += counted(c.raw)
		}
	}
	return sum
}

// counted returns the value of a counter.
func counted(c prometheus.Counter) float64 {
	var now dto.Metric
	if c.Write(&now) != nil {
		return 0
	}
	return now.GetCounter().GetValue()
}

func (m *Metrics) sending(k sentKey) sentCounters {
	m.mu.RLock()
	c, ok := m.sent[k]
	m.mu.RUnlock()
	if ok {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c = sentCounters{m.raw.WithLabelValues(k.peer, k.job, k.codec, k.role.String()), m.wire.WithLabelValues(k.peer, k.job, k.codec, k.role.String())}
	m.sent[k] = c
	return c
}

func (m *Metrics) delivering(k gotKey) prometheus.Counter {
	m.mu.RLock()
	c, ok := m.got[k]
	m.mu.RUnlock()
	if ok {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c = m.delivered.WithLabelValues(k.peer, k.job)
	m.got[k] = c
	return c
}

// A Traffic has the bytes of the apps of a job, to and from a peer.
type Traffic struct {
	Peer      string `json:"peer"`
	Job       string `json:"job"`        // "": connections of no job
	Raw       int64  `json:"raw_bytes"`  // that apps sent
	Wire      int64  `json:"wire_bytes"` // that the tunnel was handed for them
	Delivered int64  `json:"delivered_bytes"`
}

// moved returns how many bytes the apps have sent to the proxy and received from it.
func (m *Metrics) moved() (n int64) {
	if m == nil {
		return 0
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, c := range m.sent {
		n += int64(counted(c.raw))
	}
	for _, c := range m.got {
		n += int64(counted(c))
	}
	return n
}

// Traffic returns the counters of raw, wire and delivered bytes by peer and job, in this order.
func (m *Metrics) Traffic() []Traffic {
	all := map[gotKey]*Traffic{}
	of := func(k gotKey) *Traffic {
		if all[k] == nil {
			all[k] = &Traffic{Peer: k.peer, Job: k.job}
		}
		return all[k]
	}
	m.mu.RLock()
	for k, c := range m.sent {
		t := of(gotKey{k.peer, k.job})
		t.Raw += int64(counted(c.raw))
		t.Wire += int64(counted(c.wire))
	}
	for k, c := range m.got {
		of(k).Delivered = int64(counted(c))
	}
	m.mu.RUnlock()
	list := make([]Traffic, 0, len(all))
	for _, t := range all {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b Traffic) int { return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Job, b.Job)) })
	return list
}

// groups returns the bytes that Sent has counted by peer, job and role, whatever the codec, in a fixed order.
func (m *Metrics) groups() (all []trials.Sent) {
	if m == nil {
		return nil
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for k, c := range m.sent {
		i := slices.IndexFunc(all, func(s trials.Sent) bool { return s.Peer == k.peer && s.Job == k.job && s.Role == k.role })
		if i < 0 {
			i, all = len(all), append(all, trials.Sent{Peer: k.peer, Job: k.job, Role: k.role})
		}
		all[i].Raw += int64(counted(c.raw))
		all[i].Wire += int64(counted(c.wire))
	}
	all = slices.DeleteFunc(all, func(s trials.Sent) bool { return s.Raw == 0 && s.Wire == 0 })
	slices.SortFunc(all, func(a, b trials.Sent) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Role, b.Role))
	})
	return all
}

// Encoded observes the time to encode a block.
func (m *Metrics) Encoded(codec string, role tensor.Role, took time.Duration) {
	if m != nil {
		m.encode.WithLabelValues(codec, role.String()).Observe(took.Seconds())
	}
}

// Decoded observes the time to decode a block. The role is the one that the peer tells.
func (m *Metrics) Decoded(codec string, role tensor.Role, took time.Duration) {
	if m != nil {
		m.decode.WithLabelValues(codec, role.String()).Observe(took.Seconds())
	}
}

// Began counts a value of a tensor.
func (m *Metrics) Began(t tensor.Tensor) {
	if m != nil {
		m.began.WithLabelValues(t.Role.String(), t.Evidence()).Inc()
	}
}

// FellBack counts a value or a block that was not coded as a rule says.
func (m *Metrics) FellBack(codec string, role tensor.Role, why tensor.Reason) {
	if m != nil {
		m.fallbacks.WithLabelValues(why.String(), codec, role.String()).Inc()
	}
}

// Drifts counts a job whose values drift.
func (m *Metrics) Drifts(job string) {
	if m != nil {
		m.drifted.WithLabelValues(job).Inc()
	}
}

// Doubted counts a job that has a sum which is no gradient.
func (m *Metrics) Doubted(reason string) {
	if m != nil {
		m.doubted.WithLabelValues(reason).Inc()
	}
}

// GaveUp counts a direction that stopped being understood.
func (m *Metrics) GaveUp(protocol string) {
	if m != nil {
		m.given.WithLabelValues(protocol).Inc()
	}
}

func (m *Metrics) ParserSpent(peer, of string) {
	if m != nil {
		m.spent.WithLabelValues(peer, of).Inc()
	}
}

// counts returns the counts of frames that come; nil: they are not counted.
func (m *Metrics) counts() *frame.Counts {
	if m == nil {
		return nil
	}
	return &m.frames
}

func (m *Metrics) opens(peer, result string) {
	if m != nil {
		m.opened.WithLabelValues(peer, result).Inc()
	}
}

func (m *Metrics) dialRefused(peer string) {
	if m != nil {
		m.refused.WithLabelValues(peer).Inc()
	}
}

func (m *Metrics) carries(peer, client string, by float64) {
	if m != nil {
		m.connections.WithLabelValues(peer, client).Add(by)
	}
}

func (m *Metrics) endedAs(peer, how string) {
	if m != nil {
		m.ended.WithLabelValues(peer, how).Inc()
	}
}

// Delivered counts n bytes that were delivered to an app.
func (m *Metrics) Delivered(peer, job string, n int) {
	if m != nil {
		m.delivering(gotKey{peer, job}).Add(float64(n))
	}
}

// deliverer returns Delivered for one peer, for a caller that has no time to look up its counter.
func (m *Metrics) deliverer(peer string) func(n int) {
	if m == nil {
		return nil
	}
	c := m.delivering(gotKey{peer: peer})
	return func(n int) { c.Add(float64(n)) }
}

// Drifted observes the norm of a residual over that of its value, and over that of the value that was encoded.
func (m *Metrics) Drifted(codec string, role tensor.Role, ratio, relative float64) {
	if m != nil {
		m.drift.WithLabelValues(codec, role.String()).Observe(ratio)
		m.Erred(codec, role, relative)
	}
}

// Erred observes the norm of the loss of an encoding over that of the value that was encoded.
func (m *Metrics) Erred(codec string, role tensor.Role, relative float64) {
	if m != nil {
		m.relative.WithLabelValues(codec, role.String()).Observe(relative)
	}
}

// Adapted observes the sparsity of a codec that adapts it.
func (m *Metrics) Adapted(codec string, role tensor.Role, sparsity float64) {
	if m != nil {
		m.sparsity.WithLabelValues(codec, role.String()).Observe(sparsity)
	}
}

// Guarded counts a block that travels exactly since receivers are too far behind, and its tensor if it is the first of
// it.
func (m *Metrics) Guarded(codec string, role tensor.Role, first bool) {
	if m != nil {
		m.guardExact.WithLabelValues(codec, role.String()).Inc()
		if first {
			m.guardTensors.WithLabelValues(codec, role.String()).Inc()
		}
	}
}

func (m *Metrics) forgot(n int) {
	if m != nil {
		m.forgotten.Add(float64(n))
	}
}

func (m *Metrics) resumedTensor() {
	if m != nil {
		m.resumed.Inc()
	}
}

func (m *Metrics) forgotRows(n int) {
	if m != nil {
		m.lostRows.Add(float64(n))
	}
}

// WrongReference counts a value whose reference is not the one that this end holds.
func (m *Metrics) WrongReference() {
	if m != nil {
		m.wrong.Inc()
	}
}

// SharedValue counts how a value came to be held by the peer, or that it was evicted.
func (m *Metrics) SharedValue(how string) {
	if m != nil {
		m.values.WithLabelValues(how).Inc()
	}
}
