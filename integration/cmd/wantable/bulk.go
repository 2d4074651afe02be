//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A bulk is one row of the bulk table: the throughput of one connection that always has something to send.
type bulk struct {
	RateMbps int       `json:"rate_mbps"`
	RTTms    int       `json:"rtt_ms"`
	Loss     float64   `json:"loss"`              // of each direction's packets
	Direct   []float64 `json:"direct_mbps"`       // of each round, TCP under BBR
	Proxied  []float64 `json:"through_pair_mbps"` // likewise
}

// bulkTable measures every rate of loss. Both ways take turns, each on a WAN of its own.
func (m *measurement) bulkTable(ctx context.Context) error {
	for _, percent := range m.BulkLosses {
		row := bulk{RateMbps: m.BulkRate, RTTms: m.BulkRTT, Loss: percent / 100}
		link := testbed.Path(row.RateMbps, row.RTTms)
		link.Loss = row.Loss
		err := m.gradproxy.Across(ctx, 2, link, testbed.Direct, testbed.Config{}, func(plain *testbed.WAN, _ testbed.Proxies) error {
			return m.gradproxy.Across(ctx, 2, link, testbed.Lossless, testbed.Config{Congestion: m.Congestion}, func(proxied *testbed.WAN, _ testbed.Proxies) error {
				for range m.Rounds {
					for _, way := range []struct {
						wan        *testbed.WAN
						congestion string
						into       *[]float64
					}{{plain, "bbr", &row.Direct}, {proxied, "", &row.Proxied}} {
						got, err := stream(ctx, way.wan, way.congestion, time.Duration(m.BulkSeconds)*time.Second)
						if err != nil {
							return err
						}
						*way.into = append(*way.into, got)
					}
				}
				return nil
			})
		})
		if err != nil {
			return fmt.Errorf("bulk, %g %% loss: %w", percent, err)
		}
		fmt.Fprintf(os.Stderr, "bulk, %g %% loss: direct %.1f Mbit/s, through the pair %.1f\n", percent, median(row.Direct), median(row.Proxied))
		m.Bulks = append(m.Bulks, row)
	}
	return nil
}

// stream sends random bytes from one site to another for a while, and returns how many arrive, in Mbit/s.
func stream(ctx context.Context, w *testbed.WAN, congestion string, d time.Duration) (mbps float64, err error) {
	s, err := testbed.Connect(ctx, w, 0, congestion)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	s.Fill()
	return s.Receive(d)
}
