package site

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/bpf/cgroup"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// A hooked takes the connections of a cgroup.
type hooked struct {
	*intercept.Hooked
	hooks *bpf.Hooks
	group *cgroup.Group // this process is in it, and in exec the job
	job   string        // folder of the cgroup whose connections are taken
	own   bool          // job is the folder of group

	closing sync.Once
	last    []bpf.Flow // the flows when the hooks were closed
}

// newHooked makes a cgroup for this process, and one for a job unless the configuration names one, and has the kernel
// redirect the job's connections.
func (s *Site) newHooked(c *config.Config) (h *hooked, err error) {
	if err := bpf.Permitted(); err != nil {
		return nil, err
	}
	h = &hooked{job: c.Intercept.Cgroup}
	if h.group, err = cgroup.New(c.Site); err != nil {
		return nil, err
	}
	if h.own = h.job == ""; h.own {
		if h.job, err = h.group.Job(); err != nil {
			return nil, errors.Join(err, h.group.Close())
		}
	}
	r := s.redirectConfig(c)
	h.Hooked, err = intercept.NewHooked(intercept.HookedConfig{
		Networks: r.Networks, Places: r.Places, Log: r.Log, Failed: r.Failed,
		Awaited: func() (listen4, listen6 uint16, err error) {
			if h.own || r.Hold == 0 { // nobody was in this cgroup before, or the waiting connections are refused
				return 0, 0, nil
			}
			return bpf.Awaited(h.job)
		},
		Attach: func(listen4, listen6 uint16) (intercept.Hooks, error) {
			h.hooks, err = bpf.Attach(bpf.Config{
				Cgroup: h.job, Proxy: h.group.Proxy(), Own: h.group.Proxy(), Networks: r.Networks, Tunnels: r.Tunnels,
				First: r.Ports.First, Last: r.Ports.Last, Listen4: listen4, Listen6: listen6,
				Mark: intercept.Mark, Timeout: intercept.Timeout, Refuse: r.Refuse, Hold: r.Hold,
			})
			return h.hooks, err
		},
	})
	if err != nil {
		return nil, errors.Join(err, h.group.Close())
	}
	return h, nil
}

// Close removes the hooks, closes the listeners and leaves the cgroup.
func (h *hooked) Close() (err error) {
	h.closing.Do(func() {
		h.last, err = h.hooks.Flows()
		err = errors.Join(err, h.Hooked.Close(), h.group.Close())
	})
	return err
}

// JobCgroup returns the folder of the cgroup whose connections are taken; "": there is none.
func (s *Site) JobCgroup() string {
	if h, ok := s.redirect.(*hooked); ok {
		return h.job
	}
	return ""
}

// Flows returns the connections of the cgroup that were taken, as they were when it was released.
func (s *Site) Flows() []bpf.Flow {
	if h, ok := s.redirect.(*hooked); ok {
		return h.last
	}
	return nil
}

// hookMetrics lists the metrics of hooks.
var hookMetrics = []struct {
	desc  *prometheus.Desc
	value func(*bpf.Total) uint64
}{
	{hookDesc("connections_total", "Connections of the cgroup that came to the proxy."), func(t *bpf.Total) uint64 { return t.Taken }},
	{hookDesc("refused_total", "Connections of the cgroup that were refused, since the proxy was stuck."), func(t *bpf.Total) uint64 { return t.Refused }},
	{hookDesc("sent_bytes_total", "Bytes that the cgroup's processes have sent to the proxy, as the kernel counts them."), func(t *bpf.Total) uint64 { return t.Sent }},
	{hookDesc("received_bytes_total", "Bytes that they have received from it."), func(t *bpf.Total) uint64 { return t.Received }},
	{hookDesc("sent_segments_total", "TCP segments that they have sent to it."), func(t *bpf.Total) uint64 { return t.SegmentsSent }},
	{hookDesc("received_segments_total", "TCP segments that they have received from it."), func(t *bpf.Total) uint64 { return t.SegmentsReceived }},
}

func hookDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gradproxy_cgroup_"+name, help, nil, nil)
}

// Describe implements prometheus.Collector.
func (h *hooked) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range hookMetrics {
		descs <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (h *hooked) Collect(metrics chan<- prometheus.Metric) {
	total, err := h.hooks.Total()
	for _, m := range hookMetrics {
		if err != nil {
			metrics <- prometheus.NewInvalidMetric(m.desc, err)
			continue
		}
		metrics <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.value(&total)))
	}
}
