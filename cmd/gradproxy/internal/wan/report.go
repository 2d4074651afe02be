package wan

import (
	"fmt"
	"strings"
)

// Counters count the packets that one direction of a link has carried.
type Counters struct {
	Packets uint64 // that passed its bottleneck
	Bytes   uint64 // of these, headers from IP upwards included
	Lost    uint64 // packets lost at random
	Dropped uint64 // packets that found a queue full
}

// A Report has the counts of a network's links since it came up, and its price. Its JSON names are stable.
type Report struct {
	Name     string    `json:"name"`
	BackEnd  BackEnd   `json:"back_end"`
	Seconds  float64   `json:"seconds"` // that it has been up
	Currency string    `json:"currency"`
	Links    []Carried `json:"links"` // both directions of each, one after the other
	Bytes    uint64    `json:"bytes"` // of all of them
	Cost     float64   `json:"cost"`
}

// Carried has the counts of one direction of a link.
type Carried struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Packets uint64  `json:"packets"`
	Bytes   uint64  `json:"bytes"` // headers from IP upwards included
	Lost    uint64  `json:"lost"`
	Dropped uint64  `json:"dropped"`
	Price   float64 `json:"price_per_gb"` // of 10⁹ bytes
	Cost    float64 `json:"cost"`
	Now     string  `json:"now,omitempty"` // the quality that orders (wan cut, wan set) have given it; "": there are none
}

// report adds up the counts of the directions: there and back of each link of the plan.
func (p *Plan) report(seconds float64, carried [][2]Counters) Report {
	r := Report{Name: p.Name, BackEnd: p.BackEnd, Seconds: seconds, Currency: p.Currency, Links: []Carried{}}
	for i, l := range p.Links {
		from, to := l.Ends[0].Site, l.Ends[1].Site
		r.add(from, to, carried[i][0], l.There.Price)
		r.add(to, from, carried[i][1], l.Back.Price)
	}
	return r
}

func (r *Report) add(from, to string, c Counters, price float64) {
	cost := float64(c.Bytes) / 1e9 * price
	r.Links = append(r.Links, Carried{From: from, To: to, Packets: c.Packets, Bytes: c.Bytes, Lost: c.Lost, Dropped: c.Dropped, Price: price, Cost: cost})
	r.Bytes += c.Bytes
	r.Cost += cost
}

// String is the report for people: a line for each direction that has carried something or was changed, and the sum.
func (r Report) String() string {
	var b strings.Builder
	width := 0
	for _, l := range r.Links {
		width = max(width, len(l.From))
	}
	for _, l := range r.Links {
		if l.Packets+l.Dropped > 0 || l.Now != "" {
			fmt.Fprintf(&b, "  %-*s -> %-*s  %14d bytes  %10d packets  %6d lost  %6d dropped  %12.6f %s",
				width, l.From, width, l.To, l.Bytes, l.Packets, l.Lost, l.Dropped, l.Cost, r.Currency)
			if l.Now != "" {
				fmt.Fprintf(&b, "  changed: %s", l.Now)
			}
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "%s: %d bytes in %.1f s, %.6f %s, back end %s\n", r.Name, r.Bytes, r.Seconds, r.Cost, r.Currency, r.BackEnd)
	return b.String()
}
