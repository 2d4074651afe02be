package proxy

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// Settings are the part of a Config that may change while the Proxy runs. Connections that exist keep their peer and
// job.
type Settings struct {
	Peers  []Peer
	Jobs   []Job
	Policy policy.Policy
	// Shadow has the candidates: codecs that are tried on a sample of the values, while the values themselves travel as
	// Policy says. none: nothing is tried.
	Shadow []string

	// RefusedRetry is how long a server that refuses connections is dialled again for a peer, before the peer is told
	// of the refusal. 0: 30 s. negative: the peer is told at once.
	RefusedRetry time.Duration
}

// A Peer is the far end of a tunnel, and the networks behind it.
type Peer struct {
	Name     string
	Networks []netip.Prefix // destinations that are reached through the peer
	MayDial  []DialRule     // destinations that the peer may ask this proxy to dial; none: nothing
}

// A Job is a training job that the operator has described.
type Job struct {
	Name     string
	Networks []netip.Prefix // of its hosts: a connection of the job has both ends in them
	Ranks    int            // at most; 0: unknown
	Sums     parser.Sums    // which sums of its rings may lose something

	// LossyAggregates lets sums that all replicas receive lose something, with error feedback. The replicas will differ
	// a little.
	LossyAggregates bool
}

// peerNames returns the names of all peers.
func (s *Settings) peerNames() (names []string) {
	for i := range s.Peers {
		names = append(names, s.Peers[i].Name)
	}
	return names
}

// peerOf returns the peer with the longest network that contains a, or nil.
func (s *Settings) peerOf(a netip.Addr) *Peer {
	var found *Peer
	bits := -1
	for i := range s.Peers {
		for _, n := range s.Peers[i].Networks {
			if n.Contains(a) && n.Bits() > bits {
				found, bits = &s.Peers[i], n.Bits()
			}
		}
	}
	return found
}

// mayDial returns a peer's allow-list.
func (s *Settings) mayDial(peer string) []DialRule {
	for i := range s.Peers {
		if s.Peers[i].Name == peer {
			return s.Peers[i].MayDial
		}
	}
	return nil
}

// jobOf returns the first job whose networks hold both addresses, or the zero Job.
func (s *Settings) jobOf(a, b netip.Addr) Job {
	for _, j := range s.Jobs {
		if contains(j.Networks, a) && contains(j.Networks, b) {
			return j
		}
	}
	return Job{}
}

// jobsWith returns the names of the jobs that may have connections with a peer, and the empty one of connections
// without a job.
func (s *Settings) jobsWith(p *Peer) []string {
	names := []string{""}
	for _, j := range s.Jobs {
		if slices.ContainsFunc(j.Networks, func(n netip.Prefix) bool { return slices.ContainsFunc(p.Networks, n.Overlaps) }) {
			names = append(names, j.Name)
		}
	}
	return names
}

// stranger reports whether a client that a peer names in an opening lies behind another peer. What the peer says of
// such a connection is not believed: it would be taken for one of the other peer's job.
func (s *Settings) stranger(peer string, client netip.Addr) bool {
	owner := s.peerOf(client)
	return owner != nil && owner.Name != peer
}

// behind reports whether an address lies in a peer's networks. Only there a job has clients of that peer.
func (s *Settings) behind(peer string, a netip.Addr) bool {
	owner := s.peerOf(a)
	return owner != nil && owner.Name == peer
}

// mayPlay reports whether this host may dial the server of a connection from its client's address: the client must be
// in the peer's networks, and neither client nor server may be this host, which would answer itself.
func (s *Settings) mayPlay(peer string, o *frame.Opening, local func() ([]net.Addr, error)) bool {
	if !s.behind(peer, o.Client.Addr()) || o.Client.Addr().Is4() != o.Server.Addr().Is4() {
		return false
	}
	return !isLocal(o.Client.Addr(), local) && !isLocal(o.Server.Addr(), local)
}

// refusedRetry returns for how long refused dials are repeated.
func (s *Settings) refusedRetry() time.Duration {
	if s.RefusedRetry == 0 {
		return 30 * time.Second
	}
	return max(s.RefusedRetry, 0)
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// numbers gives each live connection of a job between two hosts the smallest free number, so that a connection has the
// same number after a reconnect. Ports change then, so they are not part of a tensor's identity.
type numbers struct {
	mu    sync.Mutex
	taken map[addrPair]map[int]struct{}
}

type addrPair struct {
	job            string
	client, server netip.Addr
}

func (n *numbers) take(p addrPair) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.of(p)
	i := 0
	for {
		if _, used := taken[i]; !used {
			taken[i] = struct{}{}
			return i
		}
		i++
	}
}

// keep takes number i, which a connection that another process has handed over has already.
func (n *numbers) keep(p addrPair, i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of(p)[i] = struct{}{}
}

// of returns the numbers that are taken between two hosts. mu is held.
func (n *numbers) of(p addrPair) map[int]struct{} {
	if n.taken == nil {
		n.taken = map[addrPair]map[int]struct{}{}
	}
	if n.taken[p] == nil {
		n.taken[p] = map[int]struct{}{}
	}
	return n.taken[p]
}

func (n *numbers) give(p addrPair, i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken[p], i)
	if len(n.taken[p]) == 0 {
		delete(n.taken, p)
	}
}
