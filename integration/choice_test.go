//go:build linux

package integration

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// Over a link that loses packets, sites whose kernel has another congestion control than BBR choose datagrams for their bulk by themselves, and the
// connections under way lose nothing by the change.
func TestCarrierIsChosen(t *testing.T) {
	w := newWAN(t, 2, wansim.Link{Rate: 40e6 / 8, Delay: 20 * time.Millisecond, Loss: 0.01, Queue: 1 << 20, Seed: 1})
	ps := startProxies(t, w, testbed.Config{Carrier: tunnel.CarrierAuto, Congestion: "cubic"})
	client, server := connect(t, w.Sites[0], w.Sites[1], w.Sites[1].Addr)
	piece := random(1 << 20)
	var stop atomic.Bool
	var came [2]atomic.Int64
	done := make(chan error, 4)
	for i, c := range []*net.TCPConn{client, server} { // which of both sites chooses depends on which has dialed
		c.SetDeadline(time.Time{})
		go func() {
			for !stop.Load() {
				if _, err := c.Write(piece); err != nil {
					done <- err
					return
				}
			}
			done <- c.CloseWrite()
		}()
		go func() {
			b, at := make([]byte, 64<<10), 0
			for {
				n, err := c.Read(b)
				for got := b[:n]; len(got) > 0; {
					k := min(len(got), len(piece)-at)
					if !bytes.Equal(got[:k], piece[at:at+k]) {
						t.Errorf("site %d: other bytes come after %d", i, came[i].Load())
						done <- nil
						return
					}
					at = (at + k) % len(piece)
					got = got[k:]
				}
				came[i].Add(int64(n))
				if err == io.EOF {
					err = nil
					done <- err
					return
				}
				if err != nil {
					done <- err
					return
				}
			}
		}()
	}
	chosen := func() (is bool) {
		for _, p := range ps {
			samples, err := p.Metrics(deadline(t, 10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			is = is || testbed.Sum(samples, "gradproxy_peer_choice", `carrier="dtls"`, `reason="faster"`) > 0
		}
		return is
	}
	began := time.Now()
	time.Sleep(5 * time.Second)
	before := came[0].Load() + came[1].Load()
	for !chosen() {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("datagrams were not chosen within 2 minutes, in which %d and %d bytes came", came[0].Load(), came[1].Load())
		}
		time.Sleep(500 * time.Millisecond)
	}
	took := time.Since(began)
	at := came[0].Load() + came[1].Load()
	time.Sleep(5 * time.Second)
	after := came[0].Load() + came[1].Load() - at
	stop.Store(true)
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Logf("chosen after %v; %.1f Mbit/s both ways together in the first 5 s, %.1f afterwards", took.Round(time.Second), float64(before)*8/5e6, float64(after)*8/5e6)
	if after < before {
		t.Errorf("%d bytes in 5 s after the choice, %d before it", after, before)
	}
}
