package pslite

import (
	"net/netip"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/lru"
)

// facts holds the facts that connections have shown, on all jobs.
type facts struct {
	mu      sync.Mutex // guards the fields below, and the jobs
	numbers uint64     // the number given out last
	named   map[scope]*named
	limits  limits
	tables  shared[tableKey, *job] // jobs by scheduler
	places  shared[placeKey, *job] // the same jobs, by the addresses in their tables
	lives   shared[lifeOf, life]
	pushed  shared[pushKey, *pushes]
	indices shared[uint64, index] // by place, and peer
}

// shared are the facts that peers have told, by the hash of the peer. Of several peers the one that has told most has
// its own forgotten.
type shared[K comparable, V any] = lru.Shared[uint64, K, V]

// The limits of facts are numbers of entries, of all peers together.
type limits struct{ tables, places, lives, pushed, indices int }

// production has the limits that tests lower.
var production = limits{tables: 1 << 5, places: 1 << 13, lives: 1 << 14, pushed: 1 << 17, indices: 1 << 14}

// A named is a configured job, as far as one peer and this site have told of it, or this site alone. Configurations
// bound their number.
type named struct {
	job       *job   // of the first scheduler, and of connections that no table names
	scheduler string // the first one that was seen
}

// A scope is the name that connections must have in common to share facts: the peer, and the name of the configured job
// if there is one. What a peer says of a job's nodes holds in its own scope; the nodes of this site (own.go) speak in
// all scopes of the job, and in one that keeps their words for peers to come.
type scope struct {
	job, peer string
	site      bool // the words of this site alone
}

func (x *connection) scope() scope { return scope{job: x.conn.Job, peer: x.conn.Peer} }

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
	f.named = map[scope]*named{}
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
		x.job = &job{seed: connSeed(c), peer: peerHash(c.Peer)}
		return x
	}
	x.job = f.namedIn(x.scope()).job
	return x
}

// jobOf returns the job of a connection to listener.
func (f *facts) jobOf(x *connection, listener netip.AddrPort) *job {
	return f.jobIn(x.scope(), listener, x.job)
}

// jobIn returns the job of a scope whose node has that listener, or j if none is known.
func (f *facts) jobIn(in scope, listener netip.AddrPort, j *job) *job {
	if at, ok := f.places.Use(peerHash(in.peer), placeKey{in, listener}); ok {
		return at
	}
	return j
}

// live returns the life to which a request on connection conn belongs. A worker that connects again and counts from the
// start again is another process; a life that was forgotten begins anew. replaced says that another one has ended.
func (f *facts) live(k lifeOf, timestamp int32, conn uint64) (number uint64, replaced bool) {
	l, ok := f.lives.Use(k.peer, k)
	switch {
	case ok && l.conn == conn:
		return l.number, false
	case ok && timestamp > l.first:
		l.conn = conn
	default:
		l = life{f.number(), timestamp, conn}
		replaced = ok
	}
	f.lives.Keep(k.peer, k, l, f.limits.lives)
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

// namedIn returns a configured job. A scope that is new begins with the words of this site.
func (f *facts) namedIn(in scope) *named {
	if n := f.named[in]; n != nil {
		return n
	}
	n := &named{}
	f.named[in] = n
	if site := f.named[scope{job: in.job, site: true}]; site != n && site != nil {
		f.copy(in, n, site)
	} else {
		n.job = newJob(nameSeed(in.job), f.number(), peerHash(in.peer))
	}
	return n
}

// copy gives a scope the words of this site.
func (f *facts) copy(in scope, n, site *named) {
	n.scheduler = site.scheduler
	copies := map[*job]*job{}
	of := func(j *job) *job {
		if copies[j] == nil {
			copies[j] = j.copy(f.number(), peerHash(in.peer))
		}
		return copies[j]
	}
	n.job = of(site.job)
	tables, places := map[string]*job{}, map[placeKey]*job{}
	own, peer := peerHash(""), peerHash(in.peer)
	if c := f.tables.Of(own); c != nil {
		for k, j := range c.FromOldest() {
			if k.job == in.job && k.site {
				tables[k.scheduler] = of(j)
			}
		}
	}
	if c := f.places.Of(own); c != nil {
		for k, j := range c.FromOldest() {
			if k.job == in.job && k.site {
				places[placeKey{in, k.addr}] = of(j)
			}
		}
	}
	for boss, j := range tables {
		f.tables.Keep(peer, tableKey{in, boss}, j, f.limits.tables)
	}
	for k, j := range places {
		f.places.Keep(peer, k, j, f.limits.places)
	}
}

// peerHash stands for a peer.
func peerHash(peer string) uint64 { return xxhash.Sum64String(peer) }
