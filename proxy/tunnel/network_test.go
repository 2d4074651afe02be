package tunnel

import (
	"context"
	"io"
	"testing"
	"time"
)

// TestNetworkBytes: carriers count the bytes that a link counts: a little more than the bytes of streams that are
// large, both ways, whichever carriers die meanwhile, and a multiple of the bytes of small messages.
func TestNetworkBytes(t *testing.T) {
	for _, carrier := range []string{CarrierTLS, CarrierDTLS} {
		t.Run(carrier, func(t *testing.T) {
			paris, tokyo := pairOver(t, carrier, echo, nil)
			s, err := paris.Open(context.Background(), "tokyo", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			stats := func(e *Endpoint) PeerStats { return e.Stats()[0] }
			const total = 16 << 20
			send := func(n, times int) {
				t.Helper()
				got := make([]byte, n)
				for range times {
					go s.Write(make([]byte, n))
					if _, err := io.ReadFull(s, got); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(100 * time.Millisecond) // for the last acknowledgements
			}
			before := stats(paris).Network
			send(total/4, 4)
			for _, e := range []*Endpoint{paris, tokyo} {
				now := stats(e).Network
				for way, n := range map[string]uint64{"sent": now.Sent, "received": now.Received} {
					if n < total || n > total*5/4 {
						t.Errorf("%d bytes of packets %s for %d bytes", n, way, total)
					}
				}
			}
			p := paris.list()[0].session()
			p.mu.Lock()
			p.kill(p.carriers[0], io.ErrUnexpectedEOF)
			p.mu.Unlock()
			if now := stats(paris).Network; now.Sent < before.Sent+total || now.Received < before.Received+total {
				t.Errorf("%+v after the loss of a carrier, and %d before", now, total)
			}
			at := stats(paris)
			send(1, 200)
			now := stats(paris)
			if n := now.Network.Sent - at.Network.Sent; n < 200*50 {
				t.Errorf("%d bytes of packets for 200 bytes one by one", n)
			}
		})
	}
}
