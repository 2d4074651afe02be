package site

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/codecs"
	allcodecs "github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/history"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

const (
	sampleEvery = time.Second
	// viewFor is how long a view for a peer is given again, or viewShare times as long as it took to make, if that is
	// longer: it costs a walk through all tensors.
	viewFor   = time.Second
	viewShare = 200
	// viewTensors is how many tensors a view for a peer tells one by one.
	viewTensors = 100
)

// An observer samples the site's counters for its page, each second, whether a page is open or not.
type observer struct {
	site    *Site
	metrics *proxy.Metrics
	began   time.Time
	history history.Recorder
	tensors tensorHistory

	sharing sync.Mutex
	shares  map[[2]string]*jobShare // by peer and job
	waiting map[string]jobShare     // by peer: bytes that no job has been given yet

	mu    sync.Mutex
	views map[string]*view // by peer
}

// A jobShare is the part of a link's bytes that is a job's. The kernel counts packets, which carry several jobs at
// once: each job is given the part that it has of the bytes that the tunnel was handed, and of the bytes that were
// delivered, in the second.
type jobShare struct {
	wire, delivered int64 // when it was last brought up to date
	sent, received  int64
}

// A view is the text of an admin.PeerView.
type view struct {
	text  []byte
	until time.Time // it is given
}

func newObserver(s *Site, m *proxy.Metrics) *observer {
	return &observer{site: s, metrics: m, began: time.Now(), shares: map[[2]string]*jobShare{}, waiting: map[string]jobShare{}, views: map[string]*view{}}
}

// run samples until ctx ends.
func (o *observer) run(ctx context.Context) error {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	before := map[string]tunnel.Traffic{}
	for {
		now := time.Now()
		o.sample(now, before)
		o.tensors.sample(now, func(limit int) []proxy.TensorInfo { return o.site.proxy.Summary("", limit).Largest })
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// sample adds the counters of all links and jobs to the history. before has the bytes of links at the last call.
func (o *observer) sample(now time.Time, before map[string]tunnel.Traffic) {
	traffic := o.metrics.Traffic()
	var links, jobs []history.Sample
	for _, p := range o.site.tunnel.Stats() {
		carried, last := onLinks(&p), before[p.Peer]
		before[p.Peer] = carried
		own := slices.DeleteFunc(slices.Clone(traffic), func(t proxy.Traffic) bool { return t.Peer != p.Peer })
		o.share(p.Peer, own, rise(carried.Sent, last.Sent), rise(carried.Received, last.Received))
		link := history.Sample{Name: history.Name{Peer: p.Peer, Link: true}, Sent: int64(p.Network.Sent), Received: int64(p.Network.Received),
			Down: !up(&p), Outage: p.Outage, RTT: p.RTT, Goodput: p.Rate}
		for _, t := range own {
			link.Raw, link.Wire, link.Delivered = link.Raw+t.Raw, link.Wire+t.Wire, link.Delivered+t.Delivered
			if t.Raw+t.Delivered == 0 {
				continue // a series of its own would be empty
			}
			x := o.shareOf(p.Peer, t.Job)
			jobs = append(jobs, history.Sample{Name: history.Name{Peer: p.Peer, Job: t.Job}, Raw: t.Raw, Wire: t.Wire, Delivered: t.Delivered, Sent: x.sent, Received: x.received})
		}
		links = append(links, link)
	}
	o.history.Add(now, append(links, jobs...))
}

func rise(now, before uint64) int64 {
	if now < before {
		return int64(now)
	}
	return int64(now - before)
}

// share gives the jobs of a peer their parts of the bytes that its link has carried since the last call. Bytes of a
// second in which nothing of a job was handed over wait for the next one in which something is.
func (o *observer) share(peer string, jobs []proxy.Traffic, sent, received int64) {
	o.sharing.Lock()
	defer o.sharing.Unlock()
	var wire, delivered int64
	parts := make([]*jobShare, len(jobs))
	for i, t := range jobs {
		k := [2]string{t.Peer, t.Job}
		if o.shares[k] == nil {
			o.shares[k] = &jobShare{}
		}
		parts[i] = o.shares[k]
		wire += t.Wire - parts[i].wire
		delivered += t.Delivered - parts[i].delivered
	}
	waiting := o.waiting[peer]
	waiting.sent, waiting.received = waiting.sent+sent, waiting.received+received
	sent, received = waiting.sent, waiting.received
	if wire > 0 {
		waiting.sent = 0
	}
	if delivered > 0 {
		waiting.received = 0
	}
	o.waiting[peer] = waiting
	for i, t := range jobs {
		x := parts[i]
		if wire > 0 {
			x.sent += int64(float64(sent) * float64(t.Wire-x.wire) / float64(wire))
		}
		if delivered > 0 {
			x.received += int64(float64(received) * float64(t.Delivered-x.delivered) / float64(delivered))
		}
		x.wire, x.delivered = t.Wire, t.Delivered
	}
}

// shareOf returns a job's part of a peer's link so far.
func (o *observer) shareOf(peer, job string) jobShare {
	o.sharing.Lock()
	defer o.sharing.Unlock()
	if x := o.shares[[2]string{peer, job}]; x != nil {
		return *x
	}
	return jobShare{}
}

// sentFor returns a job's part of the bytes that links have carried to all peers so far. It never falls.
func (o *observer) sentFor(job string) (sent int64) {
	o.sharing.Lock()
	defer o.sharing.Unlock()
	for k, x := range o.shares {
		if k[1] == job {
			sent += x.sent
		}
	}
	return sent
}

var (
	jobSentDesc = prometheus.NewDesc("gradproxy_job_network_sent_bytes_total",
		"The part of gradproxy_peer_network_sent_bytes_total that is a job's: each second it is shared out by the bytes that the tunnel was handed.", []string{"peer", "training_job"}, nil)
	jobReceivedDesc = prometheus.NewDesc("gradproxy_job_network_received_bytes_total",
		"The part of gradproxy_peer_network_received_bytes_total that is a job's: each second it is shared out by the bytes that were delivered.", []string{"peer", "training_job"}, nil)
)

// Describe lists the metrics.
func (o *observer) Describe(ch chan<- *prometheus.Desc) {
	ch <- jobSentDesc
	ch <- jobReceivedDesc
}

// Collect sends the jobs' parts of the links' bytes.
func (o *observer) Collect(ch chan<- prometheus.Metric) {
	for _, t := range o.metrics.Traffic() {
		x := o.shareOf(t.Peer, t.Job)
		ch <- prometheus.MustNewConstMetric(jobSentDesc, prometheus.CounterValue, float64(x.sent), t.Peer, t.Job)
		ch <- prometheus.MustNewConstMetric(jobReceivedDesc, prometheus.CounterValue, float64(x.received), t.Peer, t.Job)
	}
}

// up reports whether a peer's link carries bytes, as gradproxy_peer_up does.
func up(p *tunnel.PeerStats) bool { return p.Session && p.Carriers > 0 && p.Outage == 0 }

// live returns the state of the moment.
func (o *observer) live() admin.Live {
	s := o.site
	now := time.Now()
	l := admin.Live{Time: now.UnixMilli(), Site: s.config.Load().Site, Version: s.version, Uptime: now.Sub(o.began).Seconds(), Connections: s.proxy.Connections(),
		Checks: []admin.Result{}, Peers: []admin.Peer{}, Jobs: []proxy.Traffic{}, Budgets: s.budgets.list()}
	for _, c := range s.checks() {
		r := admin.Result{Name: c.Name, OK: c.Err == nil}
		if c.Err != nil {
			r.Error = c.Err.Error()
		}
		l.Checks = append(l.Checks, r)
	}
	traffic := o.metrics.Traffic()
	for _, t := range traffic {
		if t.Raw+t.Delivered > 0 {
			l.Jobs = append(l.Jobs, t)
		}
	}
	for _, p := range s.tunnel.Stats() {
		l.Peers = append(l.Peers, o.peer(&p, traffic))
	}
	for _, step := range history.Steps() {
		l.Points = append(l.Points, o.history.Newest(step))
	}
	return l
}

// peer describes the link to a peer.
func (o *observer) peer(p *tunnel.PeerStats, traffic []proxy.Traffic) admin.Peer {
	x := admin.Peer{Name: p.Peer, Up: up(p), Outage: p.Outage.Seconds(), RTT: p.RTT.Seconds(), Goodput: p.Rate, Streams: p.Streams, Unconfirmed: p.Unconfirmed,
		Outages: p.Outages, Sent: int64(p.Network.Sent), Received: int64(p.Network.Received), Carriers: []admin.Carrier{}}
	if p.Choice.Carrier != "" {
		x.Choice = p.Choice.Carrier + ": " + p.Choice.Reason
	}
	for _, t := range traffic {
		if t.Peer == p.Peer {
			x.Raw, x.Wire, x.Delivered = x.Raw+t.Raw, x.Wire+t.Wire, x.Delivered+t.Delivered
		}
	}
	if m := o.site.money.now(p); m.currency != "" {
		x.Money = &admin.Money{Currency: m.currency, Price: m.price, Spent: m.spent, Saved: m.direct - m.spent}
	}
	for _, c := range p.Links {
		x.Carriers = append(x.Carriers, admin.Carrier{Carrier: c.Carrier, Congestion: c.Congestion, Remote: c.Remote, Age: c.Age.Seconds(), RTT: c.RTT.Seconds(),
			Loss: c.Loss, Backlog: c.Backlog, Sent: c.Network.Sent, Received: c.Network.Received, Leaving: c.Leaving})
	}
	return x
}

// view returns this site's view of its traffic with a peer, for that peer.
func (o *observer) view(peer string) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v := o.views[peer]; v != nil && time.Now().Before(v.until) {
		return v.text
	}
	begin := time.Now()
	s := o.site
	v := admin.PeerView{Site: s.config.Load().Site, Program: s.version, Jobs: []proxy.Traffic{}}
	for _, t := range o.metrics.Traffic() {
		if t.Peer == peer {
			v.Raw, v.Wire, v.Delivered = v.Raw+t.Raw, v.Wire+t.Wire, v.Delivered+t.Delivered
			v.Jobs = append(v.Jobs, t)
		}
	}
	for _, p := range s.tunnel.Stats() {
		if p.Peer == peer {
			v.Sent, v.Received, v.RTT, v.Goodput = int64(p.Network.Sent), int64(p.Network.Received), p.RTT.Seconds(), p.Rate
		}
	}
	sum := s.proxy.Summary(peer, viewTensors)
	v.Tensors = admin.Tensors{Count: sum.Count, Largest: sum.Largest, Groups: sum.Groups}
	text := v.Encode()
	o.views[peer] = &view{text, begin.Add(max(viewFor, viewShare*time.Since(begin)))}
	return text
}

// halves asks all peers for their views.
func (o *observer) halves(ctx context.Context) []admin.Half {
	peers := o.site.config.Load().Peers
	all := make([]admin.Half, len(peers))
	var asked sync.WaitGroup
	for i, p := range peers {
		asked.Go(func() {
			all[i].Peer = p.Name
			text, err := o.site.proxy.View(ctx, p.Name)
			if err == nil {
				all[i].View, err = admin.DecodeView(text)
			}
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				all[i].Error = "the peer does not answer in time"
			case err != nil:
				all[i].Error = err.Error()
			}
		})
	}
	asked.Wait()
	return all
}

// tensor returns one tensor that this site sends, with its history.
func (o *observer) tensor(id uint64) (proxy.TensorInfo, *admin.TensorHistory, bool) {
	t, ok := o.site.proxy.Tensor(id)
	return t, o.tensors.of(id), ok
}

// lossy reports whether a codec, by its text, may lose something.
func lossy(text string) bool {
	c, err := allcodecs.New(text)
	return err == nil && codecs.Lossy(c)
}
