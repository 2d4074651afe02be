package wan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A BackEnd plays the links.
type BackEnd string

// The back ends that there are.
const (
	User   BackEnd = "user"   // TUN devices and this process between them
	Kernel BackEnd = "kernel" // tbf and netem
	EBPF   BackEnd = "ebpf"   // programs at clsact
)

// A Plan lists the parts that are made of a topology. Its JSON names are stable.
type Plan struct {
	Name        string              `json:"name"`
	BackEnd     BackEnd             `json:"back_end"`
	Why         string              `json:"why"` // this back end
	Currency    string              `json:"currency"`
	Sites       []PlannedSite       `json:"sites"`
	Bottlenecks []PlannedBottleneck `json:"bottlenecks"`
	Links       []PlannedLink       `json:"links"`

	topology *Topology
	rules    []string // further orders to the kernel: lines of commands
}

// A PlannedSite is a network namespace.
type PlannedSite struct {
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"` // for ip netns exec
	Addresses []netip.Addr   `json:"addresses"`
	Networks  []netip.Prefix `json:"networks"` // that lead to it
	Forwards  bool           `json:"forwards"` // others reach each other through it
}

// A PlannedLink is a link with a device at each end.
type PlannedLink struct {
	Ends  [2]End        `json:"ends"` // from and to
	There PlannedWay    `json:"there"`
	Back  PlannedWay    `json:"back"`
	RTT   time.Duration `json:"-"`

	// Router is the namespace between the ends, with back ends in the kernel.
	Router string `json:"router,omitempty"`

	link Link
}

// An End is a device in a site that leads to another, after which it is called.
type End struct {
	Site   string         `json:"site"`
	Index  int            `json:"index"` // of the site
	Device string         `json:"device"`
	Routes []netip.Prefix `json:"routes"` // the network that is reached through it
}

// A PlannedBottleneck is one that directions pass first whose Via names it.
type PlannedBottleneck struct {
	Name  string `json:"name"`
	Rate  int64  `json:"rate_bps"`
	Queue int64  `json:"queue_bytes"`
}

// A PlannedWay is a direction as people read it.
type PlannedWay struct {
	Rate   int64   `json:"rate_bps"` // 0: unlimited
	Delay  float64 `json:"delay_ms"`
	Jitter float64 `json:"jitter_ms"`
	Loss   float64 `json:"loss"`
	Queue  int64   `json:"queue_bytes"` // 0: unlimited
	Price  float64 `json:"price_per_gb"`
	Via    string  `json:"via,omitempty"`
	Steps  int     `json:"trace_steps,omitempty"`
}

// NewPlan returns the plan of t by a back end, chosen for the reason why.
func NewPlan(t *Topology, b BackEnd, why string) *Plan {
	p := &Plan{Name: t.Name, BackEnd: b, Why: why, Currency: t.Currency, topology: t}
	for _, b := range t.Bottlenecks {
		p.Bottlenecks = append(p.Bottlenecks, PlannedBottleneck{b.Name, b.Rate, b.queue()})
	}
	next := t.nextHops()
	for i, s := range t.Sites {
		planned := PlannedSite{Name: s.Name, Namespace: namespaceOf(t.Name, s.Name), Addresses: s.Addresses(), Networks: s.Networks}
		for j := range t.Sites {
			for k := range t.Sites {
				if k != i && j != k && next[j][k] == i {
					planned.Forwards = true
				}
			}
		}
		p.Sites = append(p.Sites, planned)
	}
	for i, l := range t.Links {
		router := ""
		if b != User {
			router = fmt.Sprintf("wanr-%s-%d", t.Name, i)
		}
		p.Links = append(p.Links, PlannedLink{
			Router: router,
			Ends:   [2]End{t.end(next, l.From, l.To), t.end(next, l.To, l.From)},
			There:  l.way(l.There), Back: l.way(l.Back), RTT: l.RTT(), link: l,
		})
	}
	return p
}

// Renamed returns the same plan for a network of another name.
func (p *Plan) Renamed(name string) *Plan {
	t := *p.topology
	t.Name = name
	return NewPlan(&t, p.BackEnd, p.Why)
}

// namespaceOf returns the name of a site's network namespace.
func namespaceOf(topology, site string) string { return "wan-" + topology + "-" + site }

func (t *Topology) end(next [][]int, site, peer int) End {
	e := End{Site: t.Sites[site].Name, Index: site, Device: t.Sites[peer].Name}
	for to, hop := range next[site] {
		if hop == peer {
			e.Routes = append(e.Routes, t.Sites[to].Networks...)
		}
	}
	return e
}

func (l Link) way(d Direction) PlannedWay {
	return PlannedWay{Rate: d.Rate, Delay: milliseconds(d.Delay), Jitter: milliseconds(d.Jitter), Loss: d.Loss, Queue: l.queueOf(d),
		Price: d.Price, Via: d.Via, Steps: len(d.Trace.Steps)}
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

// namespaces returns the names of all that the plan makes.
func (p *Plan) namespaces() (names []string) {
	for _, s := range p.Sites {
		names = append(names, s.Namespace)
	}
	for _, l := range p.Links {
		if l.Router != "" {
			names = append(names, l.Router)
		}
	}
	return names
}

// Summary is the plan for people: a line for each site and each direction of a link.
func (p *Plan) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d sites, %d links, back end %s (%s)\n", p.Name, len(p.Sites), len(p.Links), p.BackEnd, p.Why)
	width := 0
	for _, s := range p.Sites {
		width = max(width, len(s.Name))
	}
	for _, s := range p.Sites {
		fmt.Fprintf(&b, "  site %-*s  %s  namespace %s\n", width, s.Name, join(s.Addresses), s.Namespace)
	}
	for _, x := range p.Bottlenecks {
		fmt.Fprintf(&b, "  bottleneck %s: %s, queue %s\n", x.Name, formatRate(x.Rate), formatSize(x.Queue))
	}
	for _, l := range p.Links {
		from, to := l.Ends[0].Site, l.Ends[1].Site
		fmt.Fprintf(&b, "  link %-*s -> %-*s  %s\n", width, from, width, to, l.There.describe(p.Currency))
		fmt.Fprintf(&b, "  link %-*s -> %-*s  %s\n", width, to, width, from, l.Back.describe(p.Currency))
	}
	return b.String()
}

// describe writes a direction in words.
func (w PlannedWay) describe(currency string) string {
	words := []string{formatRate(w.Rate), fmt.Sprintf("%gms", w.Delay)}
	if w.Jitter > 0 {
		words = append(words, fmt.Sprintf("jitter %gms", w.Jitter))
	}
	if w.Loss > 0 {
		words = append(words, "loss "+formatLoss(w.Loss))
	}
	if w.Queue > 0 {
		words = append(words, "queue "+formatSize(w.Queue))
	}
	if w.Via != "" {
		words = append(words, "via "+w.Via)
	}
	if w.Steps > 0 {
		words = append(words, fmt.Sprintf("trace (%d steps)", w.Steps))
	}
	if w.Price > 0 {
		words = append(words, fmt.Sprintf("%g %s/GB", w.Price, currency))
	}
	return strings.Join(words, ", ")
}

// String returns the whole plan: the summary and the orders to the devices and the kernel.
func (p *Plan) String() string {
	var b strings.Builder
	b.WriteString(p.Summary())
	for _, s := range p.Sites {
		if s.Forwards {
			fmt.Fprintf(&b, "namespace %s forwards packets\n", s.Namespace)
		}
	}
	for _, l := range p.Links {
		for _, e := range l.Ends {
			fmt.Fprintf(&b, "namespace %s device %s leads to %s\n", p.Sites[e.Index].Namespace, e.Device, join(e.Routes))
		}
	}
	for _, r := range p.rules {
		b.WriteString(r)
	}
	return b.String()
}

func join[T fmt.Stringer](list []T) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = v.String()
	}
	return strings.Join(texts, " ")
}

// site returns the planned site of a name.
func (p *Plan) site(name string) (PlannedSite, bool) {
	i := slices.IndexFunc(p.Sites, func(s PlannedSite) bool { return s.Name == name })
	if i < 0 {
		return PlannedSite{}, false
	}
	return p.Sites[i], true
}
