package pslite

import (
	"net/netip"

	"github.com/gradproxy/gradproxy/parser"
)

// facts are what connections have told, of all jobs.
type facts struct {
	numbers uint64 // given out
	named   map[string]*named
	tables  recent[tableKey, *job] // jobs of schedulers
	places  recent[placeKey, *job] // the same, by the addresses in their tables
	lives   recent[lifeOf, life]
	pushed  recent[pushKey, *pushes]
	indices recent[uint64, index] // by place
}

// A named is a configured job. Configurations bound their number.
type named struct {
	job       *job   // of the first scheduler, and of connections that no table names
	scheduler string // the first one that was seen
}

// A tableKey names a scheduler's job.
type tableKey struct{ name, scheduler string }

// A placeKey is an address that nodes of a job listen on.
type placeKey struct {
	name string
	addr netip.AddrPort
}

// Bounds: entries of a generation.
const (
	maxTables  = 1 << 5
	maxPlaces  = 1 << 13
	maxLives   = 1 << 14
	maxPushed  = 1 << 17
	maxIndices = 1 << 14
)

// number returns one that no other call returns; never 0.
func (f *facts) number() uint64 {
	f.numbers++
	return f.numbers
}

// init makes the zero facts ready.
func (f *facts) init() {
	if f.named != nil {
		return
	}
	f.named = map[string]*named{}
	f.tables.limit, f.places.limit, f.lives.limit = maxTables, maxPlaces, maxLives
	f.pushed.limit, f.indices.limit = maxPushed, maxIndices
}

// A connection is what the parsers of its two directions share.
type connection struct {
	conn     parser.Conn
	protocol *Protocol
	number   uint64 // no other connection has it
	job      *job   // where no table says better: the configured one, or one of its own
	dealer   int    // id of the node that connected, as its READY told; 0: not told
}

// open makes the connection of c.
func (p *Protocol) open(c parser.Conn) *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.facts.init()
	x := &connection{conn: c, protocol: p, number: p.facts.number()}
	if c.Job == "" {
		x.job = &job{seed: connSeed(c)}
		return x
	}
	n := p.facts.named[c.Job]
	if n == nil {
		n = &named{job: newJob(nameSeed(c.Job), p.facts.number())}
		p.facts.named[c.Job] = n
	}
	x.job = n.job
	return x
}

// jobOf returns the job of a connection to listener.
func (f *facts) jobOf(x *connection, listener netip.AddrPort) *job {
	if j, ok := f.places.get(placeKey{x.conn.Job, listener}); ok {
		return j
	}
	return x.job
}

// address returns where the node at that side is reached, or comes from.
func (x *connection) address(side parser.Side) netip.AddrPort {
	a := x.conn.Client
	if side == parser.Server {
		a = x.conn.Server
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
