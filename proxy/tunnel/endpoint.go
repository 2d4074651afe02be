package tunnel

import (
	"slices"
	"sync/atomic"
)

// An Endpoint is one site's end of its tunnels. Its methods may be called concurrently.
type Endpoint struct {
	home
	halfOpen          halfOpen
	halfOpenDatagrams halfOpen // over datagrams
	relieves          atomic.Bool

	mu    endpointLock
	peers []*peer         // in the order of Config.Peers
	wasUp map[string]bool // names of peers that were taken out, and had had a session
}

func (e *Endpoint) list() []*peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peers
}

func (e *Endpoint) peerByName(name string) *peer {
	return e.find(func(p *peer) bool { return p.name == name })
}

func (e *Endpoint) peerByID(id string) *peer {
	return e.find(func(p *peer) bool { return p.id == id })
}

// find returns the first peer that f takes; nil: none.
func (e *Endpoint) find(f func(*peer) bool) *peer {
	peers := e.list()
	if i := slices.IndexFunc(peers, f); i >= 0 {
		return peers[i]
	}
	return nil
}
