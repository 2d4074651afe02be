package proxy

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A connection is of a job only if the job's networks hold both of its ends, in one network or in two. With one end
// inside it is of no job: no roles are configured for it, so nothing of it may be lost.
func TestJobHoldsBothEnds(t *testing.T) {
	network := netip.MustParsePrefix
	s := Settings{Jobs: []Job{
		{Name: "first", Networks: []netip.Prefix{network("10.1.0.0/16"), network("10.2.0.0/16")}, Sums: parser.SumsGradients},
		{Name: "second", Networks: []netip.Prefix{network("10.2.0.0/16"), network("10.3.0.0/16"), network("fd00::/64")}},
	}}
	for _, c := range []struct{ client, server, job string }{
		{"10.1.0.1", "10.2.0.1", "first"},
		{"10.1.0.1", "10.1.0.2", "first"},
		{"10.2.0.1", "10.2.0.2", "first"}, // both jobs hold both ends
		{"10.2.0.1", "10.3.0.1", "second"},
		{"fd00::1", "fd00::2", "second"},
		{"10.1.0.1", "10.3.0.1", ""}, // each end in another job
		{"10.1.0.1", "192.0.2.1", ""},
		{"192.0.2.1", "10.3.0.1", ""},
		{"fd00::1", "fd00:0:0:1::1", ""},
		{"192.0.2.1", "192.0.2.2", ""},
	} {
		client, server := netip.MustParseAddr(c.client), netip.MustParseAddr(c.server)
		for _, j := range []Job{s.jobOf(client, server), s.jobOf(server, client)} {
			if j.Name != c.job || (j.Sums == parser.SumsGradients) != (c.job == "first") {
				t.Errorf("%v and %v: job %q with sums %v, want job %q", client, server, j.Name, j.Sums, c.job)
			}
		}
	}
}

// What a peer carries here for a client that lies behind another peer is no tensor's, and of no job.
func TestStrangersTravelVerbatim(t *testing.T) {
	for _, owner := range []string{"far", "another"} { // the pair's proxies call each other far
		p := newPair(t, []parser.Protocol{pathtest.Toy{Role: tensor.State, Base: true}})
		settings := *p.far.settings.Load()
		if far := settings.Peers[0]; owner != far.Name {
			settings.Peers = []Peer{{Name: far.Name, MayDial: far.MayDial}, {Name: owner, Networks: far.Networks}}
		}
		p.far.Apply(settings)
		c, s := p.connect(t)
		w := make([]byte, 4096)
		for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
			if got := carry(t, way[0], way[1], pathtest.ToyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
				t.Fatal("other bytes arrived")
			}
		}
		if n := len(p.far.Tensors()); (n > 0) != (owner == "far") {
			t.Errorf("a client of %s, which far names: %d tensors were seen", owner, n)
		}
	}
}

// A peer's client that lies behind another peer is a stranger; one that lies behind none may be a host behind address
// translation.
func TestStranger(t *testing.T) {
	network := netip.MustParsePrefix
	s := Settings{Peers: []Peer{
		{Name: "tokyo", Networks: []netip.Prefix{network("10.2.0.0/16")}},
		{Name: "osaka", Networks: []netip.Prefix{network("10.2.3.0/24"), network("fd00::/64")}},
	}}
	for _, c := range []struct {
		peer, client string
		want         bool
	}{
		{"tokyo", "10.2.0.1", false}, {"tokyo", "10.2.3.1", true}, {"osaka", "10.2.3.1", false}, {"osaka", "10.2.0.1", true},
		{"tokyo", "fd00::1", true}, {"tokyo", "192.0.2.1", false}, {"osaka", "127.0.0.1", false},
	} {
		if got := s.behind(c.peer, netip.MustParseAddr(c.client)); got != (!c.want && c.client != "192.0.2.1" && c.client != "127.0.0.1") {
			t.Errorf("a client %s of %s: behind it %v", c.client, c.peer, got)
		}
		if got := s.stranger(c.peer, netip.MustParseAddr(c.client)); got != c.want {
			t.Errorf("a client %s of %s: stranger %v", c.client, c.peer, got)
		}
	}
}
