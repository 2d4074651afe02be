package proxy

import (
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A quota is what the connections of one peer may use together. Names of peers come from the configuration, which bounds their number.
type quota struct {
	parserTime   allowance
	parserMemory memory.Share
}

// quotas are the quotas of all peers.
type quotas struct {
	cores int
	mu    sync.Mutex
	all   map[string]*quota
}

// of returns the quota of a peer.
func (q *quotas) of(peer string) *quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	x := q.all[peer]
	if x == nil {
		x = &quota{parserTime: allowance{cores: q.cores, left: timeBurst, then: sinceStart()}}
		if q.all == nil {
			q.all = map[string]*quota{}
		}
		q.all[peer] = x
	}
	return x
}

var processStart = time.Now()

// sinceStart is a clock that costs little to read.
func sinceStart() time.Duration { return time.Since(processStart) }
