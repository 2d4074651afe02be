package inspect

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// A Link is a full-duplex link between a site and all others.
type Link struct {
	Rate int64         // bits per second each way, at least 1
	RTT  time.Duration // to any other site
}

// String writes the link as users do.
func (l Link) String() string {
	for _, u := range []struct {
		name string
		of   int64
	}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}} {
		if l.Rate >= u.of {
			return fmt.Sprintf("%v%s, %v", float64(l.Rate)/float64(u.of), u.name, l.RTT)
		}
	}
	return fmt.Sprintf("%dbit/s, %v", l.Rate, l.RTT)
}

// DefaultLinks are the links of a WhatIf for which none were named.
func DefaultLinks() []Link {
	return []Link{{1e7, 20 * time.Millisecond}, {1e8, 20 * time.Millisecond}, {1e9, 20 * time.Millisecond}}
}

// Bytes of a link beside the bytes of an app's connection, or of the tunnel, with packets of 1,500 bytes. The tunnel's
// were measured (docs/numbers.md).
const (
	directOverhead = 1500. / 1448 // for each byte
	tunnelOverhead = 1.04
	tunnelSetup    = 10_000 // for two sites: certificates, and the first control frames
	tunnelBurst    = 200    // each time that one of two sites begins to send after the other: records and packets that are not full, acknowledgements
)

// A Question has the facts that a WhatIf takes beside the capture. The zero Question is ready for use.
type Question struct {
	Links    []Link           // none: DefaultLinks
	Price    float64          // of 10^9 bytes that leave a site; 0: there is no price
	Currency string           // code of ISO 4217, if there is a price
	Sites    [][]netip.Prefix // the networks of each site; a host in none is a site of its own
}

// sitesOf returns the names of the sites of a connection's client and server: their networks, or their hosts. Where
// both are one host that is in no named site, as in a capture of a job that ran on one machine, the clients stand for
// one site and the servers for another.
func (q *Question) sitesOf(client, server netip.Addr) (names [2]string) {
	var named [2]bool
	for side, host := range [2]netip.Addr{client, server} {
		names[side], named[side] = q.site(host)
	}
	if client == server && !named[0] {
		return [2]string{names[0] + " (clients)", names[1] + " (servers)"}
	}
	return names
}

func (q *Question) site(host netip.Addr) (name string, named bool) {
	for _, networks := range q.Sites {
		for _, n := range networks {
			if n.Contains(host) {
				return strings.Trim(fmt.Sprint(networks), "[]"), true
			}
		}
	}
	return host.String(), false
}

// A WhatIf compares policies by a job's bytes on links. Its JSON names are stable.
type WhatIf struct {
	Sites    []string   `json:"sites"`
	Links    []WireLink `json:"links"`
	Price    float64    `json:"price_per_gb"` // of bytes that leave a site; 0: none was named
	Currency string     `json:"currency,omitempty"`
	Within   int        `json:"within_sites_bytes"` // of connections whose ends are at one site: no link carries them
	Outcomes []Outcome  `json:"outcomes"`           // without proxies, then with them, by policy
	Alike    string     `json:"alike,omitempty"`    // why all policies cost the same, in a sentence; "": they do not
}

// A WireLink is a Link in JSON.
type WireLink struct {
	Rate int64   `json:"rate_bps"`
	RTT  float64 `json:"rtt_ms"`
}

// An Outcome is the cost of a job's bytes under one policy.
type Outcome struct {
	Codec    string    `json:"codec"`      // the policy; "direct": no proxies
	Bytes    int       `json:"link_bytes"` // of all links together, with the headers of every layer
	Ratio    float64   `json:"ratio"`      // the bytes of direct over these
	Error    float64   `json:"relative_error"`
	Residual float64   `json:"residual_ratio"`
	Coding   float64   `json:"coding_seconds"` // of one core of this machine
	Money    float64   `json:"money"`          // for the bytes that leave sites
	Seconds  []float64 `json:"seconds"`        // on each of the links
}

// Direct names the outcome without proxies.
const Direct = "direct"

// A traffic has the bytes that cross links, by site, under one policy.
type traffic struct{ out, in map[string]int }

func (t *traffic) add(from, to string, bytes int) {
	if t.out == nil {
		t.out, t.in = map[string]int{}, map[string]int{}
	}
	t.out[from] += bytes
	t.in[to] += bytes
}

// busiest returns the most bytes that a link carries in one direction, and sum the bytes of all.
func (t *traffic) busiest() (largest, sum int) {
	for _, n := range t.out {
		largest, sum = max(largest, n), sum+n
	}
	for _, n := range t.in {
		largest = max(largest, n)
	}
	return largest, sum
}

// whatIf answers q for the connections that x has read to their ends.
func (x *inspector) whatIf(q *Question, conns []Connection) *WhatIf {
	links := q.Links
	if len(links) == 0 {
		links = DefaultLinks()
	}
	w := &WhatIf{Sites: []string{}, Price: q.Price, Currency: q.Currency}
	for _, l := range links {
		w.Links = append(w.Links, WireLink{l.Rate, float64(l.RTT) / 1e6})
	}
	seen := map[string]bool{}
	raw := traffic{}
	turns := 0
	for i, wire := range x.wires {
		from, to := wire.sites[0], wire.sites[1]
		if from == to {
			w.Within += conns[i].FromClient.Bytes + conns[i].FromServer.Bytes
			continue
		}
		for _, s := range wire.sites {
			if !seen[s] {
				seen[s], w.Sites = true, append(w.Sites, s)
			}
		}
		raw.add(from, to, conns[i].FromClient.Bytes)
		raw.add(to, from, conns[i].FromServer.Bytes)
		turns = max(turns, wire.turns)
	}
	largest, total := raw.busiest()
	fixed := len(x.bursts) * tunnelSetup
	for _, b := range x.bursts {
		fixed += b.count * tunnelBurst
	}
	ask := func(o Outcome, of *traffic, overhead float64, fixed int) {
		busy, sum := of.busiest()
		o.Bytes = int(float64(sum)*overhead) + fixed
		o.Money = float64(o.Bytes) / 1e9 * q.Price
		o.Ratio = 1
		if len(w.Outcomes) > 0 && o.Bytes > 0 {
			o.Ratio = float64(w.Outcomes[0].Bytes) / float64(o.Bytes)
		}
		coding := o.Coding * float64(largest) / float64(max(1, total)) // of the proxy that codes most
		for _, l := range links {
			carrying := (float64(busy)*overhead + float64(fixed)/2) * 8 / float64(l.Rate)
			o.Seconds = append(o.Seconds, max(carrying, coding)+float64(turns)*l.RTT.Seconds()/2)
		}
		w.Outcomes = append(w.Outcomes, o)
	}
	ask(Outcome{Codec: Direct}, &raw, directOverhead, 0)
	for _, c := range x.costings {
		ask(Outcome{Codec: c.text, Error: c.quality.MeanError(), Residual: c.quality.MeanResidual(), Coding: c.quality.Coding.Seconds()}, &c.traffic, tunnelOverhead, fixed)
	}
	var roles RoleBytes
	for i := range conns {
		roles = roles.plus(conns[i].FromClient.RoleBytes).plus(conns[i].FromServer.RoleBytes)
	}
	w.Alike = w.alike(roles)
	return w
}
