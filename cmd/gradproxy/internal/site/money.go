package site

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A ledger counts the money that links to peers with a price have cost, and would have cost without this proxy. It is
// brought up to date when metrics are read and when prices change.
type ledger struct {
	raw func(peer string) float64 // bytes that apps have sent to a peer

	mu       sync.Mutex
	accounts map[string]*account // by peer
}

// An account has the sums of one peer.
type account struct {
	price         config.Price // zero: none, and nothing is counted
	currency      string       // of the sums
	network, raw  float64      // bytes when the account was last brought up to date
	spent, direct float64      // money: for the link's bytes, and for the apps' if the link had carried them as they are
}

const gigabyte = 1e9 // bytes, as bills count

// setPrices has the prices of peers hold from now on. stats are the peers' present counters.
func (l *ledger) setPrices(peers []config.Peer, stats []tunnel.PeerStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range stats {
		l.update(&stats[i])
	}
	for _, a := range l.accounts {
		a.price = config.Price{}
	}
	for _, p := range peers {
		a := l.of(p.Name)
		if a.price = p.Price; a.price.Currency != "" && a.price.Currency != a.currency {
			a.currency, a.spent, a.direct = a.price.Currency, 0, 0
		}
	}
}

// of returns the account of a peer. mu is held.
func (l *ledger) of(peer string) *account {
	a := l.accounts[peer]
	if a == nil {
		if a = new(account); l.accounts == nil {
			l.accounts = map[string]*account{}
		}
		l.accounts[peer] = a
	}
	return a
}

// update counts a peer's bytes since the last update by the price of that time, and returns its account. mu is held.
func (l *ledger) update(s *tunnel.PeerStats) *account {
	a := l.of(s.Peer)
	network, raw := float64(s.Network.Sent), l.raw(s.Peer)
	if network < a.network { // the peer was taken out of the configuration and has come back
		a.network = 0
	}
	a.spent += (network - a.network) / gigabyte * a.price.EgressPerGB
	a.direct += (raw - a.raw) / gigabyte * a.price.EgressPerGB
	a.network, a.raw = network, raw
	return a
}

// money is the money of a peer so far.
type money struct {
	currency      string // "": the peer has no price, or the kernel does not tell the link's bytes
	price         float64
	spent, direct float64
}

// now returns the money of a peer.
func (l *ledger) now(s *tunnel.PeerStats) (m money) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.update(s)
	if a.price.Currency == "" || s.Network == (tunnel.Traffic{}) && s.Sent > 0 {
		return m // else all would seem saved
	}
	return money{a.price.Currency, a.price.EgressPerGB, a.spent, a.direct}
}

var (
	priceDesc  = moneyDesc("price", "Price of 10^9 bytes that leave for the peer, by the configuration.")
	spentDesc  = moneyDesc("spent_total", "Money for the bytes that links carried to the peer.")
	directDesc = moneyDesc("direct_total", "Money for the bytes that apps sent to the peer, had links carried them as they are.")
	savedDesc  = moneyDesc("saved", "The difference of the two: money that this proxy has saved; negative if links carried more than apps sent.")
)

func moneyDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gradproxy_peer_egress_"+name, help, []string{"peer", "currency"}, nil)
}

// collect sends the metrics of a peer that has a price.
func (l *ledger) collect(ch chan<- prometheus.Metric, s *tunnel.PeerStats) {
	a := l.now(s)
	if a.currency == "" {
		return
	}
	for _, m := range []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value float64
	}{
		{priceDesc, prometheus.GaugeValue, a.price},
		{spentDesc, prometheus.CounterValue, a.spent},
		{directDesc, prometheus.CounterValue, a.direct},
		{savedDesc, prometheus.GaugeValue, a.direct - a.spent},
	} {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value, s.Peer, a.currency)
	}
}
