package intercept

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	// Mark is the SO_MARK of the proxy's own connections: a connection with it is never redirected to the proxy.
	Mark = 0x67707879

	// Timeout is how long the rules stay in force after the proxy last refreshed them, and Refresh how often it does.
	// Three refreshes may fail, or come late, before connections pass it by.
	Timeout = 5 * time.Second
	Refresh = 1500 * time.Millisecond

	// HoldFor is how long connections are held for a dead proxy, once Timeout is over: long enough for a restart, and
	// for the packet behind it in which the client's kernel tries again (1, 3, 7, 15 and 31 s after the first).
	HoldFor = 30 * time.Second
)

// localMark and localMarks are the marks of packets that a transparent proxy takes, one of 65,536 for each site: the
// routing rules of two on one host do not touch each other, for the second of one mark does not start. None is Mark.
const (
	localMark  = 0x67710000
	localMarks = 1 << 16
)

// Names of the table's parts.
const (
	setAlive     = "alive"
	setHeld      = "held"
	setNetworks  = "networks" // with 4 or 6 behind
	setTunnels   = "tunnels"  // with 4 or 6 behind
	chainOutput  = "output"
	chainGateway = "prerouting"
	chainRefuse  = "refuse_output"
	chainForward = "refuse_forward"
)

// Priorities of hooks, as netfilter_ipv4.h has them: NF_IP_PRI_MANGLE, NF_IP_PRI_NAT_DST and NF_IP_PRI_FILTER. The
// destination is rewritten, or the packet routed to this host, before the filter chains see it, so these see only
// packets that were not redirected to the proxy.
const (
	priorityMangle = -150
	priorityDNAT   = -100
	priorityFilter = 0
)

// Ports is a range of ports, both ends included.
type Ports struct{ First, Last uint16 }

// String returns the range as the configuration and nft write it.
func (p Ports) String() string {
	if p.First == p.Last {
		return fmt.Sprint(p.First)
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// A Plan is the rules of one proxy as data. String prints them in nft's own language; Redirect applies the same.
type Plan struct {
	Table    string           // name of the inet table
	Networks []netip.Prefix   // destinations that are redirected to the proxy, none inside another: see Merge
	Ports    Ports            // destination ports; 22 is never taken
	Tunnels  []netip.AddrPort // the peers' tunnel addresses, never taken
	Listen4  uint16           // the proxy's listener for IPv4; 0: no IPv4
	Listen6  uint16           // the same for IPv6
	Gateway  bool             // also redirect connections that other hosts send through this one
	Refuse   bool             // when the proxy is dead new connections are refused; false: they go directly to the peer
	// Hold, with Refuse, is for how long they are not refused: their first packets are dropped, which clients repeat.
	// So is the kernel's refusal at the listener's port of a proxy that was killed a moment ago (not for Transparent).
	Hold time.Duration
	// Transparent redirects only connections that other hosts send through this one, and leaves the packets as they
	// are: with this mark they are routed to this host, where the listener has the server's address. 0: the destination
	// is rewritten.
	Transparent uint32
}

// A family holds the differences between IPv4 and IPv6 in a Plan.
type family struct {
	suffix  string // of set names
	ip      string // the keyword of nft
	typ     string // nft's type of an address
	listen  uint16
	is      func(netip.Addr) bool
	local   netip.Addr // the loopback address
	offset  uint32     // of the destination address in the network header, bytes
	bytes   uint32     // in an address
	nfproto byte
}

var loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// families returns the families that the plan redirects.
func (p *Plan) families() []family {
	all := []family{
		{"4", "ip", "ipv4_addr", p.Listen4, netip.Addr.Is4, loopback4, 16, 4, 2},
		{"6", "ip6", "ipv6_addr", p.Listen6, netip.Addr.Is6, netip.IPv6Loopback(), 24, 16, 10},
	}
	return slices.DeleteFunc(all, func(f family) bool { return f.listen == 0 })
}

func (p *Plan) networks(f family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(p.Networks), func(n netip.Prefix) bool { return !f.is(n.Addr()) })
}

func (p *Plan) tunnels(f family) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(p.Tunnels), func(a netip.AddrPort) bool { return !f.is(a.Addr()) })
}

// A chain is one chain of a Plan.
type chain struct {
	name, kind, hook string
	priority         int
	refuse           bool // ends in a reset rather than at the proxy
}

func (p *Plan) chains() []chain {
	if p.Transparent != 0 {
		cs := []chain{{chainGateway, "filter", "prerouting", priorityMangle, false}}
		if p.Refuse {
			cs = append(cs, chain{chainForward, "filter", "forward", priorityFilter, true})
		}
		return cs
	}
	cs := []chain{{chainOutput, "nat", "output", priorityDNAT, false}}
	if p.Gateway {
		cs = append(cs, chain{chainGateway, "nat", "prerouting", priorityDNAT, false})
	}
	if p.Refuse {
		cs = append(cs, chain{chainRefuse, "filter", "output", priorityFilter, true})
	}
	if p.Refuse && p.Gateway {
		cs = append(cs, chain{chainForward, "filter", "forward", priorityFilter, true})
	}
	return cs
}

// String returns the plan as nft -f reads it. The first two lines make it replace a table of that name.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s\ndelete table inet %[1]s\ntable inet %[1]s {\n", p.Table)
	fmt.Fprintf(&b, "\tset %s {\n\t\ttype inet_proto\n\t\tflags timeout\n\t\ttimeout %s\n\t\telements = { tcp }\n\t}\n", setAlive, Timeout)
	if p.Hold > 0 {
		fmt.Fprintf(&b, "\tset %s {\n\t\ttype inet_proto\n\t\tflags timeout\n\t\ttimeout %s\n\t\telements = { tcp }\n\t}\n", setHeld, Timeout+p.Hold)
	}
	for _, f := range p.families() {
		writeSet(&b, setNetworks+f.suffix, f.typ, "\t\tflags interval\n", p.networks(f), netip.Prefix.String)
		writeSet(&b, setTunnels+f.suffix, f.typ+" . inet_service", "", p.tunnels(f), func(a netip.AddrPort) string {
			return fmt.Sprintf("%s . %d", a.Addr(), a.Port())
		})
	}
	for _, c := range p.chains() {
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %d; policy accept;\n", c.name, c.kind, c.hook, c.priority)
		if p.Transparent != 0 && !c.refuse {
			fmt.Fprintf(&b, "\t\tmeta l4proto tcp socket transparent 1 meta mark set %#x accept\n", p.Transparent)
		}
		if c.name == chainRefuse && p.Hold > 0 {
			for _, f := range p.families() {
				fmt.Fprintf(&b, "\t\tmeta nfproto %s tcp sport %d tcp flags & (fin|syn|rst|ack) == rst|ack tcp sequence 0 drop\n", f.typ[:4], f.listen)
			}
		}
		fmt.Fprintf(&b, "\t\tmeta mark %#x return\n\t\ttcp dport 22 return\n\t\tfib daddr type local return\n", Mark)
		for _, f := range p.families() {
			fmt.Fprintf(&b, "\t\t%s daddr . tcp dport @%s%s return\n", f.ip, setTunnels, f.suffix)
			match := fmt.Sprintf("\t\t%s daddr @%s%s tcp dport %s tcp flags & (fin|syn|rst|ack) == syn ", f.ip, setNetworks, f.suffix, p.Ports)
			if c.refuse && p.Hold > 0 {
				fmt.Fprintf(&b, "%smeta l4proto @%s drop\n", match, setHeld)
			}
			b.WriteString(match)
			switch {
			case c.refuse:
				b.WriteString("reject with tcp reset\n")
			case p.Transparent != 0:
				fmt.Fprintf(&b, "meta l4proto @%s tproxy %s to %s meta mark set %#x accept\n",
					setAlive, f.ip, netip.AddrPortFrom(f.local, f.listen), p.Transparent)
			default:
				fmt.Fprintf(&b, "meta l4proto @%s redirect to :%d\n", setAlive, f.listen)
			}
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func writeSet[E any](b *strings.Builder, name, typ, flags string, elems []E, text func(E) string) {
	fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n%s", name, typ, flags)
	if len(elems) > 0 {
		texts := make([]string, len(elems))
		for i, e := range elems {
			texts[i] = text(e)
		}
		fmt.Fprintf(b, "\t\telements = { %s }\n", strings.Join(texts, ", "))
	}
	b.WriteString("\t}\n")
}

// markOf returns the mark of packets that the transparent proxy of a site takes. Two names may have the same: a
// Redirect claims its own.
func markOf(site string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(site))
	return localMark + h.Sum32()%localMarks
}

// TableName returns the name of the table for a site. Bytes that nft would not take in a name become "_".
func TableName(site string) string {
	return "gradproxy_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, site)
}

// Merge returns the networks in order, in canonical form, without networks that lie inside another: intervals of a set
// may not overlap.
func Merge(networks []netip.Prefix) []netip.Prefix {
	in := slices.Clone(networks)
	for i, n := range in {
		in[i] = n.Masked()
	}
	slices.SortFunc(in, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, n := range in {
		if len(out) == 0 || !out[len(out)-1].Overlaps(n) {
			out = append(out, n)
		}
	}
	return out
}
