//go:build linux

package integration

import (
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// The proxies' counters of bytes on the network agree with the link's own, for bulk and for small messages, and on a
// link that loses packets: bytes that are sent again count again, and lost ones are not received.
func TestNetworkBytesAreTheLinks(t *testing.T) {
	for _, c := range []struct {
		carrier string
		loss    float64
	}{{tunnel.CarrierTLS, 0}, {tunnel.CarrierDTLS, 0}, {tunnel.CarrierTLS, 0.05}, {tunnel.CarrierDTLS, 0.05}} {
		t.Run(fmt.Sprintf("%s, %v lost", c.carrier, c.loss), func(t *testing.T) {
			carrier, loss := c.carrier, c.loss
			w := newWAN(t, 2, wansim.Link{Rate: 100e6 / 8, Delay: 5 * time.Millisecond, Queue: 4 << 20, Loss: loss, Seed: 1})
			ps := startProxies(t, w, testbed.Config{Carrier: carrier})
			client, server := connect(t, w.Sites[0], w.Sites[1], w.Sites[1].Addr)
			go io.Copy(server, server)
			counted := func() (sent, received float64) {
				for _, p := range ps {
					samples, err := p.Metrics(deadline(t, time.Minute))
					if err != nil {
						t.Fatal(err)
					}
					sent += testbed.Sum(samples, "gradproxy_peer_network_sent_bytes_total")
					received += testbed.Sum(samples, "gradproxy_peer_network_received_bytes_total")
				}
				return sent, received
			}
			kinds, tolerance := []struct{ size, times int }{{16 << 20, 1}, {300, 200}}, 0.02
			if loss > 0 {
				// The kernel counts neither the options by which TCP tells of gaps nor bytes that come twice.
				kinds, tolerance = kinds[:1], 0.04
			}
			for _, c := range kinds {
				time.Sleep(500 * time.Millisecond) // the last acknowledgements
				link := w.LinkBytes()
				sentBefore, receivedBefore := counted()
				b, got := random(c.size), make([]byte, c.size)
				client.SetDeadline(time.Now().Add(2 * time.Minute))
				for range c.times {
					go client.Write(b)
					if _, err := io.ReadFull(client, got); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(500 * time.Millisecond)
				onLink := float64(w.LinkBytes() - link)
				sent, received := counted()
				sent, received = sent-sentBefore, received-receivedBefore
				total := float64(2 * c.size * c.times)
				t.Logf("%d times %d bytes both ways: %.0f bytes on the link (%.3f of the payload), %.0f counted, %.4f of them; %.0f received, %.4f",
					c.times, c.size, onLink, onLink/total, sent, sent/onLink, received, received/onLink)
				if math.Abs(sent-onLink) > tolerance*onLink {
					t.Errorf("%.0f bytes on the link, %.0f counted", onLink, sent)
				}
				if came := (1 - loss) * onLink; math.Abs(received-came) > tolerance*came {
					t.Errorf("about %.0f bytes have crossed the link, %.0f are counted as received", came, received)
				}
			}
		})
	}
}
