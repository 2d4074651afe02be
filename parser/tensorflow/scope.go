package tensorflow

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// The first word of a mix says how its other words are made.
const (
	seedOfJob  = iota // a configured job
	seedOfPeer        // connections without a job
	keyOfEdge
	keyOfShared // values that several receivers get
	keyOfBuffer
	keyOfArgument
)

// A scope is the name that connections must have in common to share facts: their peer, and the name of their configured
// job if they have one. Peers of a job need not trust each other. site: what tasks of this site have told their leaders
// of a job's collectives counts for all its peers.
type scope struct {
	job, peer string
	site      bool
}

func scopeOf(c parser.Conn) scope { return scope{job: c.Job, peer: c.Peer} }

// ofSite returns the scope of what this site tells of the job.
func (s scope) ofSite() scope { return scope{job: s.job, site: true} }

// seed begins the keys of a scope's tensors. Each end has another name for the peer, so that is no part of it: devices'
// incarnations, which are drawn at random, tell jobs apart.
func (s scope) seed() uint64 {
	if s.job != "" {
		return mix.Words(seedOfJob, hashOf(s.job))
	}
	return mix.Words(seedOfPeer)
}
