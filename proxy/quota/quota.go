package quota

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/allowance"
	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A Quota bounds the resources that the connections of one peer use together. Names of peers come from the
// configuration, which bounds their number.
type Quota struct {
	parserTime   account // of seconds of the processor
	parserMemory memory.Share
	decoding     account       // of bytes
	dials        account       // of repeated dials
	busy         *atomic.Int64 // peers with connections
	share        share         // of the processors
	live         int           // connections, and streams of values; guarded by Quotas.mu
}

// Quotas are the quotas of all peers.
type Quotas struct {
	cores     int
	parsing   *memory.Budget // of parsers' state
	scheduler scheduler
	mu        sync.Mutex
	all       map[string]*Quota
	busy      atomic.Int64 // peers with connections
}

// New returns the quotas of peers that share a number of cores, and the bytes parsing for the state of parsers.
func New(cores int, parsing int64) *Quotas {
	return &Quotas{cores: cores, parsing: memory.NewBudget(parsing), scheduler: scheduler{cores: cores}}
}

// Schedule returns begin, which waits until the peer may work on a frame, and returns end, which lets the next peer
// work. Only one goroutine at a time may use them. While a peer is alone, begin does not wait.
func (q *Quotas) Schedule(x *Quota) (begin func() (end func())) {
	g := new(grant)
	end := func() { q.scheduler.end(g) }
	nothing := func() {}
	return func() func() {
		if q.busy.Load() < 2 {
			return nothing
		}
		q.scheduler.begin(g, &x.share)
		return end
	}
}

// Of returns the quota of a peer.
func (q *Quotas) Of(peer string) *Quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	x := q.all[peer]
	if x == nil {
		now, cores := time.Now(), float64(q.cores)
		x = &Quota{parserTime: account{allowance: allowance.New(cores/timeShare, timeBurst.Seconds(), now)},
			decoding: account{allowance: allowance.New(cores*decodeRate, decodeBurst, now)},
			dials:    account{allowance: allowance.New(DialRate, DialBurst, now)},
			busy:     &q.busy}
		if q.all == nil {
			q.all = map[string]*Quota{}
		}
		q.all[peer] = x
	}
	return x
}

// Enter notes a connection of a peer; leave takes it back.
func (q *Quotas) Enter(x *Quota) (leave func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if x.live++; x.live == 1 {
		q.busy.Add(1)
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if x.live--; x.live == 0 {
			q.busy.Add(-1)
		}
	}
}

// The bounds of decoding. A few bytes may stand for megabytes: a peer that sends such blocks has this side write as
// fast as memory allows, and other peers' connections starve. While several peers have connections, the bytes that a
// peer's bytes decode to, beyond decodeTimes their number, are taken from an allowance of the peer.
const (
	decodeTimes = 16
	decodeRate  = 128 << 20 // bytes a second for each core
	decodeBurst = 64 << 20
)

// Pace waits until so many encoded bytes of the peer may be decoded, to so many bytes, or until gone is closed.
func (x *Quota) Pace(encoded, decoded int, gone <-chan struct{}) {
	if extra := decoded - decodeTimes*encoded; extra > 0 && x.busy.Load() > 1 {
		x.decoding.await(extra, gone)
	}
}

// The bounds of dials that are repeated for one peer, since their server has refused. Its openings have a rate, and
// with it the first dial of each; without one for the others, the openings that may wait at once would each have a
// server dialled every second.
const (
	DialRate  = 200 // a second
	DialBurst = 512 // at once
)

// AwaitDial waits until a server may be dialled once more for the peer, or ctx ends. A dial that is given up takes
// nothing from the others.
func (x *Quota) AwaitDial(ctx context.Context) {
	if !x.dials.await(1, ctx.Done()) {
		x.dials.giveBack(1)
	}
}
