package intercept

import (
	"net/netip"
	"reflect"
	"testing"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// Intervals of a set may not overlap, and a peer's network inside another's is redirected either way.
func TestMergeDropsWhatLiesInsideAnother(t *testing.T) {
	got := Merge(prefixes("10.2.3.0/24", "10.3.0.0/16", "2001:db8:1::/48", "10.2.0.0/16", "10.2.3.0/24", "2001:db8::/32", "10.2.9.9/16"))
	want := prefixes("10.2.0.0/16", "10.3.0.0/16", "2001:db8::/32")
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("Merge = %v, want %v", got, want)
	}
}

// The printed rules keep the package's promises: never port 22, local addresses, tunnels or marked sockets; first
// packets only; in force only while the set is alive.
func TestPlanPrintsItsRules(t *testing.T) {
	c := RedirectConfig{Site: "paris", Networks: prefixes("10.2.0.0/16", "2001:db8:2::/48"),
		Tunnels: []netip.AddrPort{netip.MustParseAddrPort("10.2.0.1:7443")}, Refuse: true}
	p := c.Plan(40004, 40006)
	want := `table inet gradproxy_paris
delete table inet gradproxy_paris
table inet gradproxy_paris {
	set alive {
		type inet_proto
		flags timeout
		timeout 5s
		elements = { tcp }
	}
	set networks4 {
		type ipv4_addr
		flags interval
		elements = { 10.2.0.0/16 }
	}
	set tunnels4 {
		type ipv4_addr . inet_service
		elements = { 10.2.0.1 . 7443 }
	}
	set networks6 {
		type ipv6_addr
		flags interval
		elements = { 2001:db8:2::/48 }
	}
	set tunnels6 {
		type ipv6_addr . inet_service
	}
	chain output {
		type nat hook output priority -100; policy accept;
		meta mark 0x67707879 return
		tcp dport 22 return
		fib daddr type local return
		ip daddr . tcp dport @tunnels4 return
		ip daddr @networks4 tcp dport 1024-65535 tcp flags & (fin|syn|rst|ack) == syn meta l4proto @alive redirect to :40004
		ip6 daddr . tcp dport @tunnels6 return
		ip6 daddr @networks6 tcp dport 1024-65535 tcp flags & (fin|syn|rst|ack) == syn meta l4proto @alive redirect to :40006
	}
	chain refuse_output {
		type filter hook output priority 0; policy accept;
		meta mark 0x67707879 return
		tcp dport 22 return
		fib daddr type local return
		ip daddr . tcp dport @tunnels4 return
		ip daddr @networks4 tcp dport 1024-65535 tcp flags & (fin|syn|rst|ack) == syn reject with tcp reset
		ip6 daddr . tcp dport @tunnels6 return
		ip6 daddr @networks6 tcp dport 1024-65535 tcp flags & (fin|syn|rst|ack) == syn reject with tcp reset
	}
}
`
	if got := p.String(); got != want {
		t.Errorf("plan:\n%s\nwant:\n%s", got, want)
	}
}

func TestTableName(t *testing.T) {
	if got := TableName("eu-west.1"); got != "gradproxy_eu_west_1" {
		t.Errorf("TableName = %q", got)
	}
}
