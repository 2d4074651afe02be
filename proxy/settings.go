package proxy

import (
	"net/netip"
	"sync"
)

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

func contains(networks []netip.Prefix, a netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// numbers gives the live connections of a job between two hosts the smallest free number each, so that after a reconnect a
// connection has the number that it had: ports change, and are no part of a tensor's identity.
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
	if n.taken == nil {
		n.taken = map[addrPair]map[int]struct{}{}
	}
	if n.taken[p] == nil {
		n.taken[p] = map[int]struct{}{}
	}
	i := 0
	for {
		if _, used := n.taken[p][i]; !used {
			n.taken[p][i] = struct{}{}
			return i
		}
		i++
	}
}

func (n *numbers) give(p addrPair, i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken[p], i)
	if len(n.taken[p]) == 0 {
		delete(n.taken, p)
	}
}
