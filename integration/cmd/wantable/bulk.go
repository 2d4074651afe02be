//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

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
						wan  *testbed.WAN
						bbr  bool
						into *[]float64
					}{{plain, true, &row.Direct}, {proxied, false, &row.Proxied}} {
						got, err := stream(ctx, way.wan, way.bbr, time.Duration(m.BulkSeconds)*time.Second)
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

// stream sends random bytes from one site to another for a while, and returns how many arrive, in Mbit/s. bbr: the connection is to be under BBR.
func stream(ctx context.Context, w *testbed.WAN, bbr bool, d time.Duration) (mbps float64, err error) {
	from, to := w.Sites[0], w.Sites[1]
	l, err := to.Listen(netip.AddrPortFrom(to.Addr, 0).String())
	if err != nil {
		return 0, err
	}
	defer l.Close()
	near, err := from.Dial(ctx, "tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer near.Close()
	if bbr {
		if err := underBBR(near.(*net.TCPConn)); err != nil {
			return 0, err
		}
	}
	far, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer far.Close()
	chunk := make([]byte, 256<<10)
	rand.Read(chunk)
	near.(*net.TCPConn).SetLinger(0) // bytes under way at the end are dropped
	go func() {
		for {
			if _, err := near.Write(chunk); err != nil {
				return // the measurement is over
			}
		}
	}()
	far.SetReadDeadline(time.Now().Add(d))
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, far, make([]byte, 256<<10))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("the connection ended early: %w", errors.Join(err, ctx.Err()))
	}
	return float64(n) * 8 / d.Seconds() / 1e6, nil
}

func underBBR(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if controlled := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "bbr")
	}); controlled != nil {
		return controlled
	}
	if err != nil {
		return fmt.Errorf("no BBR to compare with (modprobe tcp_bbr): %w", err)
	}
	return nil
}
