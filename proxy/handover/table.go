package handover

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// Name is the name under which hellos list, among codecs, that a proxy's connections can rest while a process of its
// peer is replaced.
const Name = "hand-over"

// Config has the parts of a Table. Open, Peers and Log are needed; package proxy's Config documents the others.
type Config struct {
	Open       func(ctx context.Context, peer string, opening []byte) (Stream, error)
	Await      func(ctx context.Context, peer string) error // nil: nobody can wait for a session
	PeerCodecs func(peer string) []string                   // nil: all peers know hand-overs
	Peers      func() []string                              // the peers of the moment
	Answer     time.Duration                                // how long a connection at rest waits for its next stream
	Log        *slog.Logger
}

// A Table has the live connections of a proxy, and counts the ones that are about to be.
type Table struct {
	config Config
	until  context.Context // of waits for a session; it ends when the proxy drains
	count  atomic.Int64    // len(live)

	mu       lock
	live     map[*Seat]struct{}
	seats    map[Key]*Seat    // of live connections that can rest
	moves    map[string]*Move // by the peer whose process is being replaced
	handing  *handing         // this process is being replaced; nil: it is not
	underWay int              // openings
	bypasses int              // connections that bypass the tunnel, or are about to
	begun    chan struct{}    // closed when handing begins
	change   chan struct{}    // closed when a connection has come to rest or ended, or an opening has ended
	draining bool
	idle     chan struct{} // closed once draining, and nothing is live or bypasses the tunnel

	asking     context.Context // of openings that another process can begin anew
	stopAsking context.CancelCauseFunc
}

// A lock is the Table's lock, whose rank is rank.Table.
type lock struct{ mu sync.Mutex }

func (l *lock) Lock()   { rank.Lock(&l.mu, rank.Table) }
func (l *lock) Unlock() { rank.Unlock(&l.mu, rank.Table) }

// New returns a Table without connections. until ends when the proxy drains.
func New(until context.Context, c Config) *Table {
	t := &Table{config: c, until: until, live: map[*Seat]struct{}{}, seats: map[Key]*Seat{}, moves: map[string]*Move{}, begun: make(chan struct{}),
		change: make(chan struct{}), idle: make(chan struct{})}
	t.asking, t.stopAsking = context.WithCancelCause(context.Background())
	return t
}

// Len returns how many connections are live.
func (t *Table) Len() int { return int(t.count.Load()) }

// Each calls f for the connection of each seat, without the lock.
func (t *Table) Each(f func(*Seat, Conn)) {
	t.mu.Lock()
	all := make(map[*Seat]Conn, len(t.live))
	for s := range t.live {
		all[s] = s.conn
	}
	t.mu.Unlock()
	for s, c := range all {
		f(s, c)
	}
}

// Idle reports whether no connection is carried, or being opened, or waits to be handed over.
func (t *Table) Idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := 0
	if t.handing != nil {
		waiting = len(t.handing.waiting)
	}
	return len(t.live)+t.underWay+t.bypasses+waiting == 0
}

// Drain lets no new connections enter. The channel is closed once the existing connections have ended.
func (t *Table) Drain() (idle <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.draining {
		t.draining = true
		t.drained()
	}
	return t.idle
}

// drained ends a drain if no connection is left that it waits for. mu is held.
func (t *Table) drained() {
	if t.draining && len(t.live) == 0 && t.bypasses == 0 {
		close(t.idle)
	}
}

// EnterBypass notes a connection that is to bypass the tunnel, until LeaveBypass; false: the Table drains.
func (t *Table) EnterBypass() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.draining {
		return false
	}
	t.bypasses++
	return true
}

// LeaveBypass takes back EnterBypass.
func (t *Table) LeaveBypass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bypasses--
	t.drained()
}

// Bypasses returns how many connections bypass the tunnel, or are about to.
func (t *Table) Bypasses() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bypasses
}

// Enter notes a connection, until Leave; false: it must be reset, since the Table drains or the connection could not be
// handed over.
func (t *Table) Enter(s *Seat) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	unnamed := s.Key.Tag.Number == 0 || t.seats[s.Key] != nil
	if t.draining || t.handing != nil && (t.handing.shut[s.Key.Peer] || unnamed && t.canRest(s.Key.Peer)) {
		return false
	}
	t.live[s] = struct{}{}
	t.count.Store(int64(len(t.live)))
	if !unnamed {
		t.seats[s.Key], s.named = s, true
	}
	t.askForRest(s)
	t.changed()
	return true
}

// Leave takes back Enter.
func (t *Table) Leave(s *Seat) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, s)
	t.count.Store(int64(len(t.live)))
	if s.named {
		delete(t.seats, s.Key)
	}
	close(s.ended)
	t.changed()
	t.drained()
}

// canRest reports whether a peer's connections can rest.
func (t *Table) canRest(peer string) bool {
	return t.config.PeerCodecs == nil || slices.Contains(t.config.PeerCodecs(peer), Name)
}

// askForRest has a connection come to rest if the table wants that of its peer's connections. mu is held.
//
// The side whose process stays rests first, since it can keep bytes (send.Sender.Unstick); the other side's sender goes
// on meanwhile, so that its app reads.
func (t *Table) askForRest(s *Seat) {
	switch {
	case !s.named || s.resting || !t.canRest(s.Key.Peer):
	case t.moves[s.Key.Peer] != nil:
		s.conn.Rest()
	case t.handing != nil:
		s.conn.RestNext(true)
	}
}

// changed wakes all goroutines that wait for connections to rest, or to end. mu is held.
func (t *Table) changed() {
	close(t.change)
	t.change = make(chan struct{})
}

// rests notes that a connection is at rest.
func (t *Table) rests(s *Seat, unsent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.resting, s.unsent = true, unsent
	t.changed()
}

// GoesOn notes that a connection at rest goes on as c, on its next stream.
func (t *Table) GoesOn(s *Seat, c Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.resting, s.unsent, s.held, s.conn = false, false, false, c
	t.askForRest(s)
}

// restless returns how many connections with a peer are not at rest. mu is held.
func (t *Table) restless(peer string) (n int) {
	for s := range t.live {
		if !s.resting && s.Key.Peer == peer {
			n++
		}
	}
	return n
}

// notHeld returns how many connections are not held. mu is held.
func (t *Table) notHeld() (n int) {
	for s := range t.live {
		if !s.held {
			n++
		}
	}
	return n
}

// doom has the connections that f wants left out of hand-overs, and returns the function that resets them and counts
// them. mu is held, and must not be when that function is called.
func (t *Table) doom(f func(*Seat) bool) (reset func() int) {
	var conns []Conn
	for s := range t.live {
		if f(s) {
			s.doomed = true
			conns = append(conns, s.conn)
		}
	}
	return func() int {
		for _, c := range conns {
			c.Abort(frame.ResetByApp)
		}
		return len(conns)
	}
}

// carriesTo reports whether there are connections with a peer.
func (t *Table) carriesTo(peer string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.live {
		if s.Key.Peer == peer {
			return true
		}
	}
	return false
}

// MoveOf returns the move of a peer; nil: there is none.
func (t *Table) MoveOf(peer string) *Move {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moves[peer]
}
