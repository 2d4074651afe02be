package quota

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A Quota bounds the resources that the connections of one peer use together. Names of peers come from the configuration, which bounds their number.
type Quota struct {
	parserTime   allowance
	parserMemory memory.Share
	decoding     pace
	dials        dials
	share        share // of the processors
	live         int   // connections, and streams of values; guarded by Quotas.mu
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

// New returns the quotas of peers that share so many cores, and so many bytes for the state of parsers.
func New(cores int, parsing int64) *Quotas {
	return &Quotas{cores: cores, parsing: memory.NewBudget(parsing), scheduler: scheduler{cores: cores}}
}

// Schedule returns begin, which waits until the peer may work on a frame and returns end, which lets the next peer work. They are for one goroutine at a
// time. While a peer is alone, begin does not wait.
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
		x = &Quota{parserTime: allowance{cores: q.cores, left: timeBurst, then: sinceStart()},
			decoding: pace{rate: float64(q.cores) * decodeRate, left: decodeBurst, then: time.Now(), busy: &q.busy},
			dials:    dials{left: DialBurst, then: time.Now()}}
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

// Pace waits until encoded bytes of the peer may become decoded bytes, or gone is closed.
func (x *Quota) Pace(encoded, decoded int, gone <-chan struct{}) {
	x.decoding.wait(encoded, decoded, gone)
}

// The bounds of decoding. A few bytes may stand for megabytes: a peer that sends such blocks has this side write as fast as memory
// allows, and other peers' connections starve. While several peers have connections, the bytes that a peer's bytes decode to, beyond decodeTimes their
// number, are taken from an allowance of the peer.
const (
	decodeTimes = 16
	decodeRate  = 128 << 20 // bytes a second for each core
	decodeBurst = 64 << 20
)

// A pace is the allowance of one peer's connections.
type pace struct {
	rate float64
	busy *atomic.Int64 // peers with connections
	mu   sync.Mutex
	left float64 // as of then
	then time.Time
}

// wait waits until encoded bytes of the peer may become decoded bytes, or gone is closed.
func (p *pace) wait(encoded, decoded int, gone <-chan struct{}) {
	extra := decoded - decodeTimes*encoded
	if extra <= 0 || p.busy.Load() < 2 {
		return
	}
	p.mu.Lock()
	now := time.Now()
	p.left = min(p.left+p.rate*now.Sub(p.then).Seconds(), decodeBurst) - float64(extra)
	p.then = now
	late := time.Duration(-p.left / p.rate * float64(time.Second))
	p.mu.Unlock()
	if late <= 0 {
		return
	}
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-gone:
	}
}

var processStart = time.Now()

// sinceStart is a clock that costs little to read.
func sinceStart() time.Duration { return time.Since(processStart) }

// AwaitDial waits until a server may be dialled once more for the peer, or ctx ends.
func (x *Quota) AwaitDial(ctx context.Context) {
	late := x.dials.take(time.Now())
	if late <= 0 {
		return
	}
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		x.dials.giveBack()
	}
}
