//go:build linux

package integration

import (
	"io"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// The proxies' counters of bytes on the network agree with the link's own, for bulk and for small messages.
func TestNetworkBytesAreTheLinks(t *testing.T) {
	for _, carrier := range []string{tunnel.CarrierTLS, tunnel.CarrierDTLS} {
		t.Run(carrier, func(t *testing.T) {
			w := newWAN(t, 2, wansim.Link{Rate: 100e6 / 8, Delay: 5 * time.Millisecond, Queue: 4 << 20})
			ps := startProxies(t, w, testbed.Config{Carrier: carrier})
			client, server := connect(t, w.Sites[0], w.Sites[1], w.Sites[1].Addr)
			go io.Copy(server, server)
			counted := func() (n float64) {
				for _, p := range ps {
					samples, err := p.Metrics(deadline(t, time.Minute))
					if err != nil {
						t.Fatal(err)
					}
					n += testbed.Sum(samples, "gradproxy_peer_network_sent_bytes_total")
				}
				return n
			}
			for _, c := range []struct{ size, times int }{{16 << 20, 1}, {300, 200}} {
				time.Sleep(500 * time.Millisecond) // the last acknowledgements
				link, counts := w.LinkBytes(), counted()
				b, got := random(c.size), make([]byte, c.size)
				client.SetDeadline(time.Now().Add(2 * time.Minute))
				for range c.times {
					go client.Write(b)
					if _, err := io.ReadFull(client, got); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(500 * time.Millisecond)
				onLink, byUs := float64(w.LinkBytes()-link), counted()-counts
				total := float64(2 * c.size * c.times)
				t.Logf("%d times %d bytes both ways: %.0f bytes on the link (%.3f of the payload), %.0f counted, %.4f of them", c.times, c.size, onLink, onLink/total, byUs, byUs/onLink)
				if byUs < 0.98*onLink || byUs > 1.02*onLink {
					t.Errorf("%.0f bytes on the link, %.0f counted", onLink, byUs)
				}
			}
		})
	}
}
