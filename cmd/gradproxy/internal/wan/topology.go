package wan

import (
	"net/netip"
	"time"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A Topology is an emulated network as its file describes it.
type Topology struct {
	File        string // where it was read
	Name        string // lower-case letters, digits and hyphens; namespaces are called after it
	About       string // one line for people; may be ""
	Currency    string // of all prices, USD by default
	Sites       []Site // two at least
	Links       []Link
	Bottlenecks []Bottleneck
	Seeded      bool // the file says a seed: losses and jitter are to be the same each time
}

// A Site is a place: a host with an address of each of its networks.
type Site struct {
	Name     string
	Networks []netip.Prefix // one of IPv4, one of IPv6, or both, IPv4 first; the site has the first address of each
	Price    float64        // of a GB (10⁹ bytes) that leaves on a link without a price of its own

	line int
}

// Addresses returns the site's own addresses, one a network.
func (s Site) Addresses() (all []netip.Addr) {
	for _, n := range s.Networks {
		all = append(all, n.Addr().Next())
	}
	return all
}

// A Link joins two sites, which are indices of Topology.Sites.
type Link struct {
	From, To    int
	There, Back Direction // from From to To, and from To to From

	line int
}

// A Direction is one direction of a link.
type Direction struct {
	Quality
	Jitter time.Duration // added to the delay, uniform in [0, Jitter); the user back end keeps the order of packets
	Queue  int64         // bytes that the bottleneck holds; 0: one bandwidth-delay product, at least 256 KiB
	Seed   uint64        // of losses and jitter, with the user back end
	Price  float64       // of a GB (10⁹ bytes)
	Via    string        // the bottleneck that packets pass first; "": none
	Trace  Trace         // how Quality changes in time; the zero Trace: it does not
}

// Quality has the properties that a trace can change.
type Quality struct {
	Rate  int64         // bits per second, headers from IP upwards included; 0: unlimited
	Delay time.Duration // one way
	Loss  float64       // probability that a packet is lost, in [0, 1]
}

// A Bottleneck is a rate and a queue that several directions share.
type Bottleneck struct {
	Name  string
	Rate  int64 // bits per second, above 0
	Queue int64 // bytes; 0: 100 ms of the rate, at least 256 KiB

	line int
}

// queueOf returns the bytes that the queue of d holds.
func (l Link) queueOf(d Direction) int64 {
	if d.Queue != 0 || d.Rate == 0 {
		return d.Queue
	}
	return int64(wansim.DefaultQueue(d.Rate/8, l.RTT()))
}

func (b Bottleneck) queue() int64 {
	if b.Queue != 0 {
		return b.Queue
	}
	return int64(wansim.DefaultQueue(b.Rate/8, 100*time.Millisecond))
}

// model returns the direction d of l, of quality q, as package wansim has it.
func (l Link) model(d Direction, q Quality, shared *wansim.Bottleneck) wansim.Link {
	d.Quality = q
	return wansim.Link{
		Rate: q.Rate / 8, Delay: q.Delay, Jitter: d.Jitter, Loss: q.Loss, Queue: int(l.queueOf(d)), Seed: d.Seed, Shared: shared,
	}
}

// RTT returns the round-trip time of an idle link without jitter.
func (l Link) RTT() time.Duration { return l.There.Delay + l.Back.Delay }

// bottleneck returns that of the name, nil for "".
func (t *Topology) bottleneck(name string) *Bottleneck {
	for i := range t.Bottlenecks {
		if t.Bottlenecks[i].Name == name {
			return &t.Bottlenecks[i]
		}
	}
	return nil
}

// Site returns the index of the site of that name.
func (t *Topology) Site(name string) (i int, ok bool) {
	for i, s := range t.Sites {
		if s.Name == name {
			return i, true
		}
	}
	return 0, false
}
