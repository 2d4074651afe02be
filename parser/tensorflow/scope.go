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

// A scope is the name that connections must have in common to share facts: the name of their configured job, or else their peer.
type scope struct{ job, peer string }

func scopeOf(c parser.Conn) scope {
	if c.Job != "" {
		return scope{job: c.Job}
	}
	return scope{peer: c.Peer}
}

// seed begins the keys of a scope's tensors. Each end has another name for the peer, so that is no part of it: devices' incarnations, which are drawn at random, tell jobs apart.
func (s scope) seed() uint64 {
	if s.job != "" {
		return mix.Words(seedOfJob, hashOf(s.job))
	}
	return mix.Words(seedOfPeer)
}
