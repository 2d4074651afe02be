package tunnel

import (
	"sync/atomic"
	"time"
)

// A far is a peer as its sessions know it: everything of it that outlives each of them.
type far struct {
	name     string
	mem      account
	chooser  chooser
	openings openings
	intake   intake
	kicks    kicks

	rtt                      atomic.Int64
	rate                     atomic.Uint64 // bytes per second
	sessions, outages        atomic.Uint64
	replayed, sent, received atomic.Uint64

	padded                       atomic.Uint64 // bytes of padding
	networkSent, networkReceived atomic.Uint64 // of IP packets, as far as they were counted
}

// path returns the known properties of the way to the peer: see Stream.Path.
func (f *far) path() (time.Duration, float64) {
	return time.Duration(f.rtt.Load()), float64(f.rate.Load())
}
