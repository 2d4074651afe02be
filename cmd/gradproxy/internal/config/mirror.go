package config

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// Together compares the configurations of several sites with each other. A contradiction between two sites is an error,
// a setting of no use to either is a warning. Each configuration must be good by itself.
func Together(sites []*Config) Problems {
	var problems Problems
	for i, a := range sites {
		for j, b := range sites {
			if i != j {
				m := mirror{a, b, a.peer(b.Site), b.peer(a.Site), &problems}
				m.compare(i < j)
			}
		}
	}
	return problems
}

// Vouch finds certificates that another of the sites does not accept. The files of a site that cannot be read are left
// out: Identify has reported them.
func Vouch(sites []*Config, now time.Time) Problems {
	var problems Problems
	for _, a := range sites {
		text, err := os.ReadFile(a.Tunnel.CA)
		roots := x509.NewCertPool()
		if err != nil || !roots.AppendCertsFromPEM(text) || a.Tunnel.Insecure {
			continue
		}
		for _, b := range sites {
			m := mirror{a, b, a.peer(b.Site), b.peer(a.Site), &problems}
			if a == b || m.there == nil {
				continue
			}
			leaf, chain := certificates(b.Tunnel.Cert)
			if leaf == nil {
				continue
			}
			if err := vouches(roots, leaf, chain, now); err != nil {
				m.errorf(a.Tunnel.line, "tunnel.ca", "%s does not vouch for %s of %s (%v): no tunnel comes up; use the files that one gradproxy cert made", a.Tunnel.CA, b.Tunnel.Cert, b.Site, err)
			} else if id := leaf.URIs; m.there.ID != "" && len(id) == 1 && id[0].String() != m.there.ID {
				m.errorf(m.there.line, a.at(b.Site)+".id", "%s, but %s of %s is that of %s: no tunnel comes up; name that id, or use the site's own certificate", m.there.ID, b.Tunnel.Cert, b.Site, id[0])
			}
		}
	}
	return problems
}

// A mirror looks from site a at site b.
type mirror struct {
	a, b        *Config
	there, back *Peer // b as a knows it, and a as b knows it; nil: it does not
	problems    *Problems
}

func (m *mirror) add(warning bool, line int, where, format string, args ...any) {
	*m.problems = append(*m.problems, Problem{File: m.a.File, Line: line, Where: where, Message: fmt.Sprintf(format, args...), Warning: warning})
}

func (m *mirror) errorf(line int, where, format string, args ...any) {
	m.add(false, line, where, format, args...)
}

func (m *mirror) warnf(line int, where, format string, args ...any) {
	m.add(true, line, where, format, args...)
}

// compare finds the settings of a that b does not mirror. first: a problem of both sites alike is reported now.
func (m *mirror) compare(first bool) {
	switch {
	case m.a.Site == m.b.Site:
		if first {
			m.errorf(m.a.lines["site"], "site", "%s is also the site of %s: each site has a name of its own", m.a.Site, m.b.File)
		}
		return
	case m.there == nil && m.back == nil:
		if first {
			m.warnf(m.a.lines["peers"], "peers", "%s (%s) is not among them, nor is %s among the peers of %s: nothing crosses between them", m.b.Site, m.b.File, m.a.Site, m.b.Site)
		}
		return
	case m.there == nil:
		m.errorf(m.a.lines["peers"], "peers", "%s (%s) is not among them, but names %s: it is refused here; add it, or take %s out there", m.b.Site, m.b.File, m.a.Site, m.a.Site)
		return
	case m.back == nil:
		return // said of b
	}
	if !m.a.live && !m.b.live { // a tunnel is up, or nothing would have been said
		m.dials(first)
	}
	m.destinations()
	m.forwards()
	m.keys(first)
	m.jobs()
}

// dials compares where a dials with where b listens.
func (m *mirror) dials(first bool) {
	where := m.a.at(m.b.Site) + ".dial"
	_, port, _ := net.SplitHostPort(m.there.Dial)
	_, listens, _ := net.SplitHostPort(m.b.Tunnel.Listen)
	switch {
	case m.there.Dial == "" && m.back.Dial == "" && first:
		m.errorf(m.there.line, where, "it is missing, and %s has none for %s either: one of both must dial the other", m.b.File, m.a.Site)
	case m.there.Dial != "" && m.b.Tunnel.Listen == Off:
		m.errorf(m.there.line, where, "%s listens nowhere (tunnel.listen: off): leave dial out here, or have %s listen", m.b.Site, m.b.Site)
	case m.there.Dial != "" && port != listens:
		m.warnf(m.there.line, where, "port %s, but %s listens on %s: right only where something on the way translates ports", port, m.b.Site, m.b.Tunnel.Listen)
	}
	if m.a.Tunnel.Insecure && !m.b.Tunnel.Insecure {
		m.errorf(m.a.Tunnel.line, "tunnel.insecure", "true here, and not at %s: no tunnel comes up; both must agree", m.b.Site)
	}
	here, there := m.a.Tunnel.Carrier, m.b.Tunnel.Carrier
	switch {
	case !first || here == there || here == tunnel.CarrierAuto || there == tunnel.CarrierAuto || here != tunnel.CarrierDTLS && there != tunnel.CarrierDTLS:
	case here != "" && there != "":
		m.errorf(m.a.Tunnel.line, "tunnel.carrier", "%s here, and %s at %s: no tunnel comes up; both must have the same, or one of them auto", here, there, m.b.Site)
	default:
		m.warnf(m.a.Tunnel.line, "tunnel.carrier", "dtls at one site and nothing at the other, which takes tls alone where its memory is short or its port of UDP is taken: then no tunnel comes up; give %s and %s the same, or one of them auto", m.a.Site, m.b.Site)
	}
}

// destinations compares the networks that a sends to b with the allow-list by which b dials for a.
func (m *mirror) destinations() {
	where := m.a.at(m.b.Site)
	ports := m.a.Intercept.Ports
	for i, n := range m.there.Networks {
		key := fmt.Sprintf("%s.networks[%d]", where, i)
		for _, o := range m.back.Networks {
			if n.Overlaps(o) {
				m.errorf(m.there.line, key, "%v lies behind %s by this file, and %v behind %s by %s: a network lies behind one of both; are they exchanged?", n, m.b.Site, o, m.a.Site, m.b.File)
			}
		}
		if m.a.Intercept.Mode == ModeOff {
			continue
		}
		want := proxy.DialRule{Network: n, First: ports.First, Last: ports.Last}
		switch m.allows(want) {
		case allowsNone:
			m.errorf(m.there.line, key, "connections to %v are taken here, and refused by %s, whose may_dial for %s allows none of them: add %q there, or take the network out", n, m.b.Site, m.a.Site, want)
		case allowsPart:
			m.warnf(m.there.line, key, "of the connections to %v on ports %v, which are taken here, %s refuses some: its may_dial for %s allows less; write %q there, or narrow networks or intercept.ports here", n, ports, m.b.Site, m.a.Site, want)
		}
	}
	for i, r := range m.there.MayDial {
		if !slices.ContainsFunc(m.back.Networks, r.Network.Overlaps) {
			m.warnf(m.there.line, fmt.Sprintf("%s.may_dial[%d]", where, i), "%v is of use to nobody: no network of %s at %s overlaps it, so nothing is sent there; correct it, or take it out", r, m.a.Site, m.b.Site)
		}
	}
}

const (
	allowsNone = iota
	allowsPart
	allowsAll
)

// allows reports how much of some destinations b dials for a.
func (m *mirror) allows(want proxy.DialRule) int {
	part := allowsNone
	for _, r := range m.back.MayDial {
		if !r.Network.Overlaps(want.Network) || r.Last < want.First || r.First > want.Last {
			continue
		}
		if r.Network.Bits() <= want.Network.Bits() && r.First <= want.First && r.Last >= want.Last {
			return allowsAll
		}
		part = allowsPart
	}
	return part
}

// forwards finds targets of a behind b that b does not dial.
func (m *mirror) forwards() {
	for i, f := range m.a.Forward {
		t := f.Target.Addr()
		if !slices.ContainsFunc(m.there.Networks, func(n netip.Prefix) bool { return n.Contains(t) }) {
			continue
		}
		want := proxy.DialRule{Network: netip.PrefixFrom(t, t.BitLen()), First: f.Target.Port(), Last: f.Target.Port()}
		if m.allows(want) != allowsAll {
			m.errorf(f.line, fmt.Sprintf("forward[%d].target", i), "%v is not in may_dial of %s for %s, which refuses it: add %q there", f.Target, m.b.Site, m.a.Site, want)
		}
	}
}

// keys compares keys that should be the same at both sites.
func (m *mirror) keys(first bool) {
	if (m.a.References == 0) != (m.b.References == 0) && m.a.References > 0 {
		m.warnf(m.a.lines["references"], "references", "of use to nobody with %s, where it is 0: values are kept only where both sites have room", m.b.Site)
	}
	if !first {
		return
	}
	if (m.a.Tunnel.Pad == 0) != (m.b.Tunnel.Pad == 0) {
		pads, other := m.a, m.b
		if m.a.Tunnel.Pad == 0 {
			pads, other = m.b, m.a
		}
		m.warnf(m.a.Tunnel.line, "tunnel.pad", "only %s pads: the packets of %s show the sizes of its messages; set it at both sites", pads.Site, other.Site)
	}
	if m.a.RefusedRetry != m.b.RefusedRetry {
		m.warnf(m.a.lines["refused_retry"], "refused_retry", "%v here, %v at %s: set the same time at all sites", m.a.RefusedRetry, m.b.RefusedRetry, m.b.Site)
	}
	if m.a.Tunnel.Resume != m.b.Tunnel.Resume {
		m.warnf(m.a.Tunnel.line, "tunnel.resume", "%v here, %v at %s: connections end when the shorter time is over; set the same", m.a.Tunnel.Resume, m.b.Tunnel.Resume, m.b.Site)
	}
}

// jobs finds jobs of a that b does not know, or knows otherwise.
func (m *mirror) jobs() {
	for i, j := range m.a.Jobs {
		if !reaches(j.Networks, m.there.Networks) || !reaches(j.Networks, m.back.Networks) {
			continue // none of its connections lies between the two
		}
		where := fmt.Sprintf("jobs[%d]", i)
		at := slices.IndexFunc(m.b.Jobs, func(o Job) bool { return o.Name == j.Name })
		if at < 0 {
			m.warnf(j.line, where, "%s has no job %s: there its connections are of no job, and no rule for the job applies; add it to %s", m.b.Site, j.Name, m.b.File)
			continue
		}
		mine, theirs := j, m.b.Jobs[at]
		mine.line, theirs.line = 0, 0
		if m.b.live { // it has told no networks of third sites
			mine.Networks = between(mine.Networks, m.back)
		}
		if (m.b.live || m.a.File < m.b.File && !m.a.live) && !reflect.DeepEqual(mine, theirs) {
			place := fmt.Sprintf("in line %d of %s", m.b.Jobs[at].line, m.b.File)
			if m.b.live {
				place = "in its running proxy"
			}
			m.warnf(j.line, where, "%s describes job %s otherwise %s: networks, ranks, sums and aggregates should be the same at all sites", m.b.Site, j.Name, place)
		}
	}
}

// peer returns a peer's entry; nil: there is none.
func (c *Config) peer(name string) *Peer {
	if i := slices.IndexFunc(c.Peers, func(p Peer) bool { return p.Name == name }); i >= 0 {
		return &c.Peers[i]
	}
	return nil
}

// at returns the place of a peer's entry in the file.
func (c *Config) at(name string) string {
	return fmt.Sprintf("peers[%d]", slices.IndexFunc(c.Peers, func(p Peer) bool { return p.Name == name }))
}
