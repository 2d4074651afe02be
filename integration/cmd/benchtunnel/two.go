//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// Bars of F2: neither flow may have more than twice of the other one's rate. Then the smaller one has 0.3 of a link
// of which both use nine tenths, and Jain's index is 0.9. Both together must use as much of it as flows in virtual
// time must (TestFlowsShare).
const (
	smallerShare = 0.3
	evenness     = 0.9
	utilization  = 0.85
)

// A sharing is how two flows have shared a bottleneck: each one's share of the link, of the flow that began and of the
// one that came later.
type sharing [2]float64

// both is the share of the link that they have together.
func (s sharing) both() float64 { return s[0] + s[1] }

// smaller is the share of the one that has less.
func (s sharing) smaller() float64 { return min(s[0], s[1]) }

// jain is Jain's index of fairness: 1 if both have as much, 0.5 if one has everything (Jain, Chiu and Hawe, A
// Quantitative Measure of Fairness, DEC-TR-301, 1984).
func (s sharing) jain() float64 { return s.both() * s.both() / (2 * (s[0]*s[0] + s[1]*s[1])) }

// besideOwnKind measures F2: two pairs of proxies, each at sites of its own, send over DTLS through one bottleneck. The
// way back is each pair's own. Two connections of plain TCP under BBR in their place say how a share comes out between
// flows of the kernel's.
func (m *measurement) besideOwnKind(ctx context.Context) error {
	var own, early, kernels []sharing
	for range m.rounds {
		bottleneck, err := m.bottleneck()
		if err != nil {
			return err
		}
		if err := m.behind(ctx, bottleneck, func(first *testbed.WAN) error {
			return m.behind(ctx, bottleneck, func(second *testbed.WAN) error {
				stretches, err := m.shareOfTwo(ctx, first, second, 0, "")
				if err != nil {
					return err
				}
				early, own = append(early, stretches[0]), append(own, stretches[1])
				if stretches, err = m.shareOfTwo(ctx, first, second, testbed.BesideProxies, "bbr"); err != nil {
					return err
				}
				kernels = append(kernels, stretches[1])
				return nil
			})
		}); err != nil {
			return err
		}
	}
	middle := func(of []sharing, f func(sharing) float64) float64 {
		var all []float64
		for _, s := range of {
			all = append(all, f(s))
		}
		return median(all)
	}
	first, second := func(s sharing) float64 { return s[0] }, func(s sharing) float64 { return s[1] }
	m.beside("F2/dtls/first", "share of the link of a carrier over DTLS, once a second one runs", middle(own, first), "of the link")
	m.beside("F2/dtls/second", "share of the link of that one, which has begun later", middle(own, second), "of the link")
	m.beside("F2/dtls/early", "share of the link of that one while it was new", middle(early, second), "of the link")
	m.add("F2/dtls/smaller", "share of the link of the smaller one, at least", middle(own, sharing.smaller), smallerShare, "of the link", false)
	m.add("F2/dtls/jain", "Jain's index of both, at least", middle(own, sharing.jain), evenness, "", false)
	m.add("F2/dtls/both", "share of the link of both together, at least", middle(own, sharing.both), utilization, "of the link", false)
	m.beside("F2/bbr/smaller", "share of the link of the smaller one of two connections of plain TCP under BBR in their place", middle(kernels, sharing.smaller), "of the link")
	m.beside("F2/bbr/jain", "Jain's index of these", middle(kernels, sharing.jain), "")
	m.beside("F2/bbr/both", "share of the link of these together", middle(kernels, sharing.both), "of the link")
	return nil
}

// bottleneck returns an idle bottleneck with the rate and the queue of the link.
func (m *measurement) bottleneck() (*wansim.Bottleneck, error) {
	link := testbed.Path(m.mbps, m.rtt)
	return wansim.NewBottleneck(link.Rate, link.Queue)
}

// behind calls f with a WAN of two sites and proxies over DTLS at them. Packets from the first site to the second one
// pass the bottleneck.
func (m *measurement) behind(ctx context.Context, bottleneck *wansim.Bottleneck, f func(*testbed.WAN) error) error {
	back := testbed.Path(m.mbps, m.rtt)
	there := wansim.Link{Delay: back.Delay, Shared: bottleneck}
	return m.gradproxy.AcrossPair(ctx, there, back, overDTLS.config, func(w *testbed.WAN, _ testbed.Proxies) error { return f(w) })
}

// shareOfTwo has a connection of each WAN send all it can, that of the second WAN later, and returns how they share the
// link in two stretches of time: from when the second one begins, and after that.
func (m *measurement) shareOfTwo(ctx context.Context, first, second *testbed.WAN, port uint16, congestion string) (stretches [2]sharing, err error) {
	a, err := testbed.Connect(ctx, first, port, congestion)
	if err != nil {
		return stretches, err
	}
	defer a.Close()
	b, err := testbed.Connect(ctx, second, port, congestion)
	if err != nil {
		return stretches, err
	}
	defer b.Close()
	a.Fill()
	if _, err := a.Receive(m.duration); err != nil {
		return stretches, err
	}
	b.Fill()
	for i := range stretches {
		var receiving errgroup.Group
		for j, s := range []*testbed.Stream{a, b} {
			receiving.Go(func() error {
				mbps, err := s.Receive(2 * m.duration)
				stretches[i][j] = mbps / float64(m.mbps)
				return err
			})
		}
		if err := receiving.Wait(); err != nil {
			return stretches, err
		}
		if stretches[i].both() == 0 {
			return stretches, fmt.Errorf("nothing has arrived in %v", 2*m.duration)
		}
		fmt.Fprintf(os.Stderr, "F2: port %d, after %v: shares %.2f\n", port, time.Duration(i+1)*2*m.duration, stretches[i])
	}
	return stretches, ctx.Err()
}
