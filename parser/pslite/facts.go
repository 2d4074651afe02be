package pslite

import (
	"net/netip"
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/lru"
)

// facts holds the facts that connections have shown, on all jobs.
type facts struct {
	mu      sync.Mutex // guards the fields below, and the jobs
	numbers uint64     // the number given out last
	named   map[string]*named
	limits  limits
	tables  lru.Cache[tableKey, *job] // jobs by scheduler
	places  lru.Cache[placeKey, *job] // the same jobs, by the addresses in their tables
	lives   lru.Cache[lifeOf, life]
	pushed  lru.Cache[pushKey, *pushes]
	indices lru.Cache[uint64, index] // by place
}

// The limits of facts are numbers of entries.
type limits struct{ tables, places, lives, pushed, indices int }

// production has the limits that tests lower.
var production = limits{tables: 1 << 5, places: 1 << 13, lives: 1 << 14, pushed: 1 << 17, indices: 1 << 14}

// A named is a configured job. Configurations bound their number.
type named struct {
	job       *job   // of the first scheduler, and of connections that no table names
	scheduler string // the first one that was seen
}

// A scope is the name that connections must have in common to share facts: the name of their configured job, or else their peer.
type scope struct{ job, peer string }

func (x *connection) scope() scope {
	if x.conn.Job != "" {
		return scope{job: x.conn.Job}
	}
	return scope{peer: x.conn.Peer}
}

// A tableKey names a scheduler's job.
type tableKey struct {
	scope
	scheduler string
}

// A placeKey is an address that nodes of a job listen on.
type placeKey struct {
	scope
	addr netip.AddrPort
}

// number returns a number that no other call returns; never 0.
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
	f.limits = production
}

// A connection holds the state that the parsers of its two directions share.
type connection struct {
	conn   parser.Conn
	facts  *facts
	number uint64 // no other connection has it
	job    *job   // the configured job, or one of this connection alone; a table overrules it
	dealer int    // id of the node that connected, from its READY; 0: not known
}

// open makes the connection of c.
func (f *facts) open(c parser.Conn) *connection {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.init()
	x := &connection{conn: c, facts: f, number: f.number()}
	if c.Job == "" {
		x.job = &job{seed: connSeed(c)}
		return x
	}
	n := f.named[c.Job]
	if n == nil {
		n = &named{job: newJob(nameSeed(c.Job), f.number())}
		f.named[c.Job] = n
	}
	x.job = n.job
	return x
}

// jobOf returns the job of a connection to listener.
func (f *facts) jobOf(x *connection, listener netip.AddrPort) *job {
	if j, ok := f.places.Use(placeKey{x.scope(), listener}); ok {
		return j
	}
	return x.job
}

// live returns the life to which a request on connection conn belongs. A worker that connects again and counts from the
// start again is another process; a life that was forgotten begins anew. replaced says that another one has ended.
func (f *facts) live(k lifeOf, timestamp int32, conn uint64) (number uint64, replaced bool) {
	l, ok := f.lives.Use(k)
	switch {
	case ok && l.conn == conn:
		return l.number, false
	case ok && timestamp > l.first:
		l.conn = conn
	default:
		l = life{f.number(), timestamp, conn}
		replaced = ok
	}
	f.lives.Keep(k, l, f.limits.lives)
	return l.number, replaced
}

// address returns where the node at that side is reached, or comes from.
func (x *connection) address(side parser.Side) netip.AddrPort {
	a := x.conn.Client
	if side == parser.Server {
		a = x.conn.Server
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
