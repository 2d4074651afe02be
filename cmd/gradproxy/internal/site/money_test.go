package site

import (
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// metered is a tunnel and an app whose counters a test sets.
type metered struct {
	peers []tunnel.PeerStats
	raw   map[string]float64
}

func (m *metered) Stats() []tunnel.PeerStats { return m.peers }

func (m *metered) set(peer string, network uint64, raw float64) {
	m.peers = []tunnel.PeerStats{{Peer: peer, Network: tunnel.Traffic{Sent: network}}}
	m.raw[peer] = raw
}

// Money is counted by the link's bytes and the apps', each by the price of its time.
func TestMoney(t *testing.T) {
	m := &metered{raw: map[string]float64{}}
	l := &ledger{raw: func(peer string) float64 { return m.raw[peer] }}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&tunnelCollector{m, l})
	priced := func(price float64, currency string) []config.Peer {
		return []config.Peer{{Name: "tokyo", Price: config.Price{EgressPerGB: price, Currency: currency}}}
	}
	check := func(when, currency string, spent, direct float64) {
		t.Helper()
		got := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if name, ok := strings.CutPrefix(f.GetName(), "gradproxy_peer_egress_"); ok {
				got[name] = f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
				if c := f.GetMetric()[0].GetLabel()[0].GetValue(); c != currency {
					t.Errorf("%s: %s is in %s, want %s", when, name, c, currency)
				}
			}
		}
		for name, want := range map[string]float64{"spent_total": spent, "direct_total": direct, "saved": direct - spent} {
			if math.Abs(got[name]-want) > 1e-9 {
				t.Errorf("%s: %s is %v, want %v", when, name, got[name], want)
			}
		}
	}
	m.set("tokyo", 1e9, 5e9)
	l.setPrices(nil, m.Stats()) // bytes before there was a price cost nothing
	if n := testutil.CollectAndCount(&tunnelCollector{m, l}, "gradproxy_peer_egress_spent_total", "gradproxy_peer_egress_price"); n != 0 {
		t.Errorf("%d metrics of money without a price", n)
	}
	l.setPrices(priced(0.1, "USD"), m.Stats())
	check("at first", "USD", 0, 0)
	m.set("tokyo", 3e9, 35e9)
	check("at one price", "USD", 0.2, 3)
	check("asked again", "USD", 0.2, 3)
	m.set("tokyo", 4e9, 45e9)
	l.setPrices(priced(1, "USD"), m.Stats())
	check("at the change", "USD", 0.3, 4)
	m.set("tokyo", 5e9, 46e9)
	check("at two prices", "USD", 1.3, 5)
	m.set("tokyo", 1e9, 46e9)
	check("after the peer's counters began anew", "USD", 2.3, 5)
	l.setPrices(priced(1, "EUR"), m.Stats())
	m.set("tokyo", 2e9, 46e9)
	check("in another currency, and with a loss", "EUR", 1, 0)
	m.peers = []tunnel.PeerStats{{Peer: "tokyo", Sent: 1e9}}
	if n := testutil.CollectAndCount(&tunnelCollector{m, l}, "gradproxy_peer_egress_spent_total", "gradproxy_peer_egress_saved"); n != 0 {
		t.Error("money is shown where nobody knows the link's bytes")
	}
	l.setPrices(priced(0, ""), m.Stats())
	if n := testutil.CollectAndCount(&tunnelCollector{m, l}, "gradproxy_peer_egress_spent_total"); n != 0 {
		t.Error("money is shown after the price has gone")
	}
}
