package wan

import (
	"fmt"
	"net/netip"
)

// maxSites bounds a topology: the default networks of more would not differ.
const maxSites = 100

// check notes the faults of the topology as a whole.
func (r *reader) check() {
	t := r.topology
	if t.Name == "" {
		r.errorf(0, "name", "it is missing: name the topology")
	}
	if n := len(t.Sites); n < 2 || n > maxSites {
		r.errorf(0, "sites", "there are %d: want 2 to %d", n, maxSites)
		return
	}
	r.checkSites()
	r.checkBottlenecks()
	r.checkLinks()
	if len(r.Problems) == 0 {
		r.checkReach()
	}
}

func (r *reader) checkSites() {
	sites := r.topology.Sites
	for i, s := range sites {
		where := fmt.Sprintf("sites[%d]", i)
		if s.Name == "" {
			r.errorf(s.line, where+".name", "it is missing")
		}
		if len(s.Networks) > 2 || len(s.Networks) == 2 && family(s.Networks[0]) == family(s.Networks[1]) {
			r.errorf(s.line, where+".networks", "want one IPv4 network, one IPv6 network, or one of each")
		} else if !sameFamilies(s, sites[0]) {
			r.errorf(s.line, where+".networks", "want networks of the same families as site %s has: it could not be reached otherwise", sites[0].Name)
		}
		for _, before := range sites[:i] {
			if before.Name == s.Name && s.Name != "" {
				r.errorf(s.line, where+".name", "there are two sites %s", s.Name)
			}
			for _, a := range s.Networks {
				for _, b := range before.Networks {
					if a.Overlaps(b) {
						r.errorf(s.line, where+".networks", "%v overlaps %v of site %s", a, b, before.Name)
					}
				}
			}
		}
	}
}

func family(p netip.Prefix) int { return p.Addr().BitLen() }

func sameFamilies(a, b Site) bool {
	if len(a.Networks) != len(b.Networks) {
		return false
	}
	for i := range a.Networks {
		if family(a.Networks[i]) != family(b.Networks[i]) {
			return false
		}
	}
	return true
}

func (r *reader) checkBottlenecks() {
	all := r.topology.Bottlenecks
	for i, b := range all {
		where := fmt.Sprintf("bottlenecks[%d]", i)
		if b.Name == "" {
			r.errorf(b.line, where+".name", "it is missing")
		}
		if b.Rate == 0 {
			r.errorf(b.line, where+".rate", "want a rate: without one nothing is shared")
		}
		for _, before := range all[:i] {
			if before.Name == b.Name && b.Name != "" {
				r.errorf(b.line, where+".name", "there are two bottlenecks %s", b.Name)
			}
		}
	}
}

func (r *reader) checkLinks() {
	t := r.topology
	seen := map[[2]int]int{}
	for _, l := range t.Links {
		where := t.Sites[l.From].Name + "-" + t.Sites[l.To].Name
		pair := [2]int{min(l.From, l.To), max(l.From, l.To)}
		switch line, twice := seen[pair]; {
		case l.From == l.To:
			r.errorf(l.line, where, "it leads from a site to itself")
		case twice:
			r.errorf(l.line, where, "these sites have a link already, in line %d", line)
		}
		seen[pair] = l.line
		for _, d := range []Direction{l.There, l.Back} {
			if d.Via != "" && t.bottleneck(d.Via) == nil {
				r.errorf(l.line, where+".via", "there is no bottleneck %s", d.Via)
			}
		}
	}
}

// checkReach notes sites that no path leads to.
func (r *reader) checkReach() {
	t := r.topology
	next := t.nextHops()
	for i, s := range t.Sites[1:] {
		if next[0][i+1] < 0 {
			r.errorf(s.line, fmt.Sprintf("sites[%d]", i+1), "no links lead from %s to %s", t.Sites[0].Name, s.Name)
		}
	}
}
