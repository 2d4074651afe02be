//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A measurement is a run of the command.
type measurement struct {
	gradproxy *testbed.Gradproxy
	keys      *keys
	mbps, rtt int       // of the link, in Mbit/s and ms
	losses    []float64 // percent
	rounds    int
	duration  time.Duration // of a connection that sends all it can
	rows      []row
}

// A variant is a way to configure the tunnel.
type variant struct {
	name   string // in rows
	config testbed.Config
}

var (
	overTLS   = variant{"tls", testbed.Config{Carrier: "tls"}}
	overCubic = variant{"tls-cubic", testbed.Config{Carrier: "tls", Congestion: "cubic"}}
	overDTLS  = variant{"dtls", testbed.Config{Carrier: "dtls"}}
)

// measure measures rows of those kinds.
func (m *measurement) measure(ctx context.Context, kinds map[string]bool) error {
	if err := m.onLoopback(ctx, kinds); err != nil {
		return err
	}
	for _, percent := range m.losses {
		if err := m.rates(ctx, percent, kinds["W1"], kinds["W2"], kinds["D3"] && percent > 0); err != nil {
			return fmt.Errorf("%g %% of loss: %w", percent, err)
		}
	}
	if kinds["S1"] {
		for _, percent := range m.losses {
			if err := m.steps(ctx, percent); err != nil {
				return fmt.Errorf("S1 at %g %% of loss: %w", percent, err)
			}
		}
	}
	if kinds["F2"] {
		if err := m.besideOwnKind(ctx); err != nil {
			return fmt.Errorf("F2: %w", err)
		}
	}
	for _, t := range []variant{overTLS, overDTLS} {
		for _, kind := range []struct {
			name    string
			measure func(context.Context, *testbed.WAN, testbed.Proxies, variant) error
		}{{"W3", m.underLoad}, {"W4", m.besideStalled}, {"F1", m.fairness}, {"T5", m.idle}} {
			if !kinds[kind.name] {
				continue
			}
			if err := m.across(ctx, t, 0, func(w *testbed.WAN, ps testbed.Proxies) error { return kind.measure(ctx, w, ps, t) }); err != nil {
				return fmt.Errorf("%s over %s: %w", kind.name, t.name, err)
			}
		}
	}
	return nil
}

// across calls f with a WAN and its proxies. The link loses that percentage of packets.
func (m *measurement) across(ctx context.Context, t variant, percent float64, f func(*testbed.WAN, testbed.Proxies) error) error {
	link := testbed.Path(m.mbps, m.rtt)
	link.Loss = percent / 100
	return m.gradproxy.Across(ctx, 2, link, testbed.Lossless, t.config, f)
}

// add adds a row. Here must be at least bar, or at most.
func (m *measurement) add(id, what string, here, bar float64, unit string, isMaximum bool) {
	r := row{ID: id, What: what, Here: here, Bar: bar, Unit: unit, OK: here >= bar}
	if isMaximum {
		r.OK = here <= bar
	}
	fmt.Fprintf(os.Stderr, "%s: %s: %.3g %s, bar %.3g\n", id, what, here, unit, bar)
	m.rows = append(m.rows, r)
}

// beside adds the figure of something else, which has no bar.
func (m *measurement) beside(id, what string, here float64, unit string) {
	m.add(id, what, here, 0, unit, false)
}

// rates measures W1, W2 and D3 at a rate of loss. Plain TCP and other stacks run on the first tunnel's link, whose
// proxies are idle then.
func (m *measurement) rates(ctx context.Context, percent float64, w1, w2, d3 bool) error {
	var tunnels []variant
	if w1 {
		tunnels = append(tunnels, overTLS)
	}
	if w2 {
		tunnels = append(tunnels, overCubic)
	}
	if len(tunnels) == 0 && !d3 {
		return nil
	}
	tunnels = append(tunnels, overDTLS)
	plain, through := map[string][]float64{}, map[string][]float64{}
	for range m.rounds {
		for i, t := range tunnels {
			if err := m.across(ctx, t, percent, func(w *testbed.WAN, _ testbed.Proxies) error {
				if i == 0 && d3 {
					for _, s := range []stack{quicGo, pionSCTP} {
						c, err := s.carry(ctx, across(w), m.keys, 1, 0, m.duration)
						if err != nil {
							return err
						}
						plain[s.name] = append(plain[s.name], c.mbps)
					}
				}
				for _, congestion := range []string{"cubic", "bbr"} {
					if i > 0 || congestion == "bbr" && !w1 {
						break
					}
					if err := m.rate(ctx, w, testbed.BesideProxies, congestion, plain, congestion); err != nil {
						return err
					}
				}
				stretches := []string{t.name}
				if percent == 0 && w1 {
					stretches = append(stretches, later(t))
				}
				return m.rate(ctx, w, 0, "", through, stretches...)
			}); err != nil {
				return err
			}
		}
	}
	m.noteRates(percent, plain, through, w1, w2, d3)
	return nil
}

// noteRates adds the rows of the rates of plain connections and of connections through tunnels, by name.
func (m *measurement) noteRates(percent float64, plain, through map[string][]float64, w1, w2, d3 bool) {
	for _, ways := range []map[string][]float64{plain, through} {
		for _, name := range slices.Sorted(maps.Keys(ways)) {
			m.beside(fmt.Sprintf("rate/%s/%g%%", name, percent), "rate of one connection over "+name, median(ways[name]), "Mbit/s")
		}
	}
	if percent == 0 && w1 {
		const header, packet = 52, 1500 // of IP and TCP
		limit := float64(m.mbps) * (packet - header) / packet
		m.add("W0/dtls", "rate of one connection over DTLS, at least, of the most that TCP can carry there", median(through["dtls"])/limit, 0.97, "x", false)
		m.add("W0/dtls/later", "the same, once it has filled the link for a while", median(through[later(overDTLS)])/limit, 0.97, "x", false)
	}
	if d3 {
		m.add(fmt.Sprintf("D3/%g%%", percent), "rate of one connection over DTLS, at least, of a stream of quic-go's", median(through["dtls"])/median(plain["quic-go"]), 10, "x", false)
	}
	id := func(kind string, t variant) string { return fmt.Sprintf("%s/%s/%g%%", kind, t.name, percent) }
	if w1 {
		for _, t := range []variant{overTLS, overDTLS} {
			m.add(id("W1", t), "rate of one connection, at least, of plain TCP's under BBR", median(through[t.name])/median(plain["bbr"]), 0.95, "x", false)
		}
	}
	if w2 {
		bar := 8.0
		if percent == 0 {
			bar = 0.9
		}
		for _, t := range []variant{overCubic, overDTLS} {
			m.add(id("W2", t), "rate of one connection, at least, of plain TCP's under Cubic", median(through[t.name])/median(plain["cubic"]), bar, "x", false)
		}
	}
}

// steps measures S1 at a rate of loss.
func (m *measurement) steps(ctx context.Context, percent float64) error {
	tunnels := []variant{overTLS, overCubic, overDTLS}
	for _, burst := range []int{50e3, 200e3, 1e6} {
		took := map[string][]float64{}
		for range m.rounds {
			for _, t := range tunnels {
				if err := m.across(ctx, t, percent, func(w *testbed.WAN, _ testbed.Proxies) error {
					s, err := testbed.Connect(ctx, w, 0, "")
					if err != nil {
						return err
					}
					defer s.Close()
					taken, err := s.Steps(burst, m.duration)
					for _, d := range taken {
						took[t.name] = append(took[t.name], d.Seconds())
					}
					return err
				}); err != nil {
					return err
				}
			}
		}
		mean := func(t variant) (sum float64) {
			for _, x := range took[t.name] {
				sum += x / float64(len(took[t.name]))
			}
			return sum
		}
		for _, t := range tunnels {
			m.beside(fmt.Sprintf("step/%s/%g%%/%d", t.name, percent, burst), fmt.Sprintf("mean time of a step with bursts of %d bytes, over %s", burst, t.name), mean(t)*1e3, "ms")
		}
		for _, t := range []variant{overTLS, overCubic} {
			m.add(fmt.Sprintf("S1/%s/%g%%/%d", t.name, percent, burst), "mean time of a step over DTLS, at most, of that over "+t.name, mean(overDTLS)/mean(t), 1.05, "x", true)
		}
	}
	return nil
}

// later names the stretch of a connection that follows its first one.
func later(t variant) string { return t.name + "-later" }

// rate measures a connection that sends all it can, in one stretch of time after the other, and adds the rate of each
// stretch, in Mbit/s, to the rates of its name.
func (m *measurement) rate(ctx context.Context, w *testbed.WAN, port uint16, congestion string, into map[string][]float64, stretches ...string) error {
	s, err := testbed.Connect(ctx, w, port, congestion)
	if err != nil {
		return err
	}
	defer s.Close()
	s.Fill()
	for _, name := range stretches {
		mbps, err := s.Receive(m.duration)
		if err != nil {
			return err
		}
		into[name] = append(into[name], mbps)
	}
	return nil
}

// underLoad measures W3.
func (m *measurement) underLoad(ctx context.Context, w *testbed.WAN, _ testbed.Proxies, t variant) error {
	var taken []time.Duration
	for range m.rounds {
		of, err := m.roundTripsUnderLoad(ctx, w)
		if err != nil {
			return err
		}
		taken = append(taken, of...)
	}
	slices.Sort(taken)
	m.add("W3/"+t.name, "a byte's round trip under load, median, at most, of the link's", taken[len(taken)/2].Seconds()*1e3/float64(m.rtt), 1.3, "x", true)
	return nil
}

// roundTripsUnderLoad returns the times that the round trips of a byte take while another connection, which is new,
// fills the link.
func (m *measurement) roundTripsUnderLoad(ctx context.Context, w *testbed.WAN) ([]time.Duration, error) {
	load, err := testbed.Connect(ctx, w, 0, "")
	if err != nil {
		return nil, err
	}
	defer load.Close()
	load.Fill()
	if _, err := load.Receive(m.duration); err != nil { // the link is full now
		return nil, err
	}
	received := make(chan error, 1)
	go func() {
		_, err := load.Receive(m.duration + time.Second)
		received <- err
	}()
	ping, err := testbed.Connect(ctx, w, 0, "")
	if err != nil {
		return nil, err
	}
	defer ping.Close()
	taken, err := ping.RoundTrips(m.duration)
	if err != nil {
		return nil, err
	}
	return taken, <-received
}

// besideStalled measures W4.
func (m *measurement) besideStalled(ctx context.Context, w *testbed.WAN, _ testbed.Proxies, t variant) error {
	rates := map[string][]float64{}
	for range m.rounds {
		if err := m.rate(ctx, w, 0, "", rates, "alone"); err != nil {
			return err
		}
		stalled, err := testbed.Connect(ctx, w, 0, "")
		if err != nil {
			return err
		}
		stalled.Fill() // and nobody reads
		select {
		case <-time.After(m.duration / 2): // until everything between is full
		case <-ctx.Done():
		}
		err = m.rate(ctx, w, 0, "", rates, "beside")
		stalled.Close()
		if err != nil {
			return err
		}
	}
	m.add("W4/"+t.name, "rate beside a connection whose reader has stopped, at least, of the rate alone", median(rates["beside"])/median(rates["alone"]), 0.95, "x", false)
	return nil
}

// fairness measures F1. The kernel's BBR in the tunnel's place says how a share comes out between other controllers.
func (m *measurement) fairness(ctx context.Context, w *testbed.WAN, _ testbed.Proxies, t variant) error {
	for _, opponent := range []string{"cubic", "bbr"} {
		var own, kernels []float64
		for range m.rounds {
			share, err := m.share(ctx, w, 0, "", opponent)
			if err != nil {
				return err
			}
			own = append(own, share)
			if share, err = m.share(ctx, w, testbed.BesideProxies, "bbr", opponent); err != nil {
				return err
			}
			kernels = append(kernels, share)
		}
		m.add("F1/"+t.name+"/"+opponent, "share of the link beside plain TCP under "+opponent+", at most: BBR TCP's share there, and 0.1 more",
			median(own), median(kernels)+0.1, "of both", true)
		m.add("F1/"+t.name+"/"+opponent+"/least", "the same, at least: half of BBR TCP's share there", median(own), median(kernels)/2, "of both", false)
	}
	return nil
}

// share returns the share that a connection has of the bytes of both, while an opponent of plain TCP sends as well as
// it can. The opponent begins first.
func (m *measurement) share(ctx context.Context, w *testbed.WAN, port uint16, congestion, opponent string) (float64, error) {
	other, err := testbed.Connect(ctx, w, testbed.BesideProxies, opponent)
	if err != nil {
		return 0, err
	}
	defer other.Close()
	other.Fill()
	if _, err := other.Receive(m.duration / 2); err != nil {
		return 0, err
	}
	s, err := testbed.Connect(ctx, w, port, congestion)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	s.Fill()
	type received struct {
		mbps float64
		err  error
	}
	others := make(chan received, 1)
	go func() {
		mbps, err := other.Receive(2 * m.duration)
		others <- received{mbps, err}
	}()
	own, err := s.Receive(2 * m.duration)
	r := <-others
	if err == nil {
		err = r.err
	}
	if err != nil {
		return 0, err
	}
	return own / (own + r.mbps), nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}
