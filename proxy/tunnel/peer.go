package tunnel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// How a side dials.
const (
	dialWithin  = 10 * time.Second
	backoffFrom = 100 * time.Millisecond
	backoffTo   = 2 * time.Second
	holdOff     = 500 * time.Millisecond // for the side that does not come first
	goodFor     = 5 * time.Second        // since the last dial: the next need not back off
)

// A peer is a configured peer and the session with it. There always is a session; it may be fresh.
type peer struct {
	e     *Endpoint
	name  string
	id    string
	wasUp bool                    // an earlier peer of this name had a session
	kicks [maxSlots]chan struct{} // the slot may need a carrier
	stop  context.CancelFunc

	stopped <-chan struct{} // closed after stop

	mem      account
	chooser  chooser
	openings openings

	mu        sync.Mutex
	address   string
	last      string    // address that was reached last, for when names cannot be resolved
	sess      *session  // the current one
	rivalOf   *session  // that has a rival
	rivalAt   time.Time // when the rival came first
	rivalTold bool      // the log has told of it
	said      string    // the fault of a dial that the log has told last; "": the last dial was good
	next      *session  // a fresh one, which replaces it once the peer's new incarnation has shown itself

	up chan struct{} // closed when a session begins; nil: nobody waits for one

	rtt                      atomic.Int64
	rate                     atomic.Uint64 // bytes per second
	sessions, outages        atomic.Uint64
	replayed, sent, received atomic.Uint64

	padded                       atomic.Uint64 // bytes of padding
	networkSent, networkReceived atomic.Uint64 // of IP packets, as far as they were counted
}

func newPeer(e *Endpoint, cfg Peer) *peer {
	p := &peer{e: e, name: cfg.Name, id: cfg.ID, mem: account{buffers: &e.mem}, address: cfg.Dial}
	for i := range p.kicks {
		p.kicks[i] = make(chan struct{}, 1)
	}
	p.openings.begin()
	p.sess = newSession(p)
	return p
}

// start runs the goroutines of a peer until stop is called.
func (p *peer) start() {
	ctx, cancel := context.WithCancel(p.e.ctx)
	p.stop, p.stopped = cancel, ctx.Done()
	for slot := range p.e.cfg.Carriers {
		p.e.running.Go(func() { p.keep(ctx, slot) })
	}
	p.e.running.Go(func() { p.watch(ctx) })
}

// setAddress sets where the peer is dialed from now on.
func (p *peer) setAddress(address string) {
	p.mu.Lock()
	p.address = address
	p.mu.Unlock()
	for slot := range p.kicks {
		p.kick(slot)
	}
}

func (p *peer) session() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sess
}

// fresh returns the session that takes the place of the current one; the lock is held.
func (p *peer) fresh() *session {
	if p.next == nil {
		p.next = newSession(p)
	}
	return p.next
}

// replace puts a fresh session in the place of one that failed.
func (p *peer) replace(failed *session) {
	p.mu.Lock()
	if p.sess == failed {
		p.sess = p.fresh()
		p.next = nil
	} else if p.next == failed {
		p.next = nil
	}
	p.mu.Unlock()
	for slot := range p.kicks {
		p.kick(slot)
	}
}

func (p *peer) kick(slot int) {
	select {
	case p.kicks[slot] <- struct{}{}:
	default:
	}
}

func (p *peer) path() (time.Duration, float64) {
	return time.Duration(p.rtt.Load()), float64(p.rate.Load())
}

// candidate returns the session to which a dialed peer of incarnation theirs can attach.
func (p *peer) candidate(theirs incarnation) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sess; s.known() == (incarnation{}) || s.known() == theirs {
		return s
	}
	return p.fresh()
}

// confirm makes s the session with the peer's incarnation, after both sides have shown that they know each
// other's. An older session is over then: the peer has restarted, or given it up.
func (p *peer) confirm(s *session, h *hello) error {
	p.mu.Lock()
	var old *session
	var err error
	switch theirs := s.known(); {
	case s != p.sess && s != p.next:
		err = errors.New("the session was replaced meanwhile")
	case theirs == (incarnation{}):
		if err = s.establish(h); err == nil && s == p.next {
			old, p.sess, p.next = p.sess, s, nil
		}
		if err == nil && p.up != nil {
			close(p.up)
			p.up = nil
		}
	case theirs != h.mine:
		err = errors.New("another incarnation of the peer was faster")
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if old != nil {
		old.fail(errors.New("the peer began a new one"), "")
	}
	return nil
}

// upcoming returns a channel that is closed when a session begins; nil: there is one.
func (p *peer) upcoming() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sess.lives() {
		return nil
	}
	if p.up == nil {
		p.up = make(chan struct{})
	}
	return p.up
}

// down returns the error of one who asks for a session where there is none.
func (p *peer) down() error {
	if !p.everUp() {
		return fmt.Errorf("%w: %s", ErrNeverUp, p.name)
	}
	return fmt.Errorf("%w: %s", ErrPeerDown, p.name)
}

// everUp reports whether there has been a session with the site of this name since the Endpoint was made.
func (p *peer) everUp() bool { return p.wasUp || p.sessions.Load() > 0 }

// known returns the peer's incarnation; zero: the session is fresh.
func (s *session) known() incarnation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.theirs
}

// lives reports whether the peer's incarnation is known, and the session has not failed.
func (s *session) lives() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.theirs != incarnation{} && s.err == nil
}

// keep keeps a carrier in the slot, if this side can dial. The first dial after one that lived a while comes at
// once, the others back off.
func (p *peer) keep(ctx context.Context, slot int) {
	var backoff time.Duration
	var up time.Time
	for ctx.Err() == nil {
		p.mu.Lock()
		s, address := p.sess, p.address
		p.mu.Unlock()
		at, need, wait := s.needs(slot)
		if address == "" {
			need, wait = false, time.Hour
		}
		if !need {
			pauseOr(ctx, wait, p.kicks[slot])
			continue
		}
		if time.Since(up) < goodFor {
			pause(ctx, backoff/2+rand.N(backoff/2+1))
			backoff = min(max(2*backoff, backoffFrom), backoffTo)
		} else {
			backoff = 0
		}
		err := p.dialChosen(ctx, s, address, at)
		if up = time.Now(); err != nil {
			backoff = max(backoff, backoffFrom)
			if stale := p.session() != s; !stale && !errors.Is(err, errAgain) && ctx.Err() == nil { // the next dial is for the session of now
				err = fmt.Errorf("tunnel: dialing %s at %s: %w", p.name, address, err)
				p.e.carrierFailed(p.name, err, p.saidBefore(err.Error()))
			}
		} else {
			p.saidBefore("")
		}
	}
}

// saidBefore reports whether the log has told last of the same fault of a dial, whichever carrier it was for.
func (p *peer) saidBefore(fault string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.said == fault
	p.said = fault
	return before
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) { pauseOr(ctx, d, nil) }

// pauseOr waits for d, for kick, or until ctx ends.
func pauseOr(ctx context.Context, d time.Duration, kick <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-kick:
	case <-ctx.Done():
	}
}

// needs reports whether this side should dial a carrier for the slot, and at which place; if not, when to ask again,
// unless something happens to the slot. Where both sides dial, the one with the smaller incarnation comes first.
func (s *session) needs(slot int) (at place, need bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at = place{slot: uint8(slot), replace: true, generation: s.generations[slot] + 1}
	if s.err != nil {
		return at, false, time.Hour
	}
	for _, c := range s.carriers {
		if int(c.place.slot) != slot {
			continue
		}
		state := c.link.State()
		if c.dialed && state.Lost { // if it is not dead after all, nothing is lost with it
			continue
		}
		if !c.leaving && !(c.dialed && (c.worn(state) || s.peer.other(c))) {
			return at, false, time.Hour
		}
		at.replace = false
	}
	if wait := holdOff - time.Since(s.vacant[slot]); s.accepted && !s.even && wait > 0 {
		return at, false, wait
	}
	return at, true, 0
}

// dial brings one carrier up. by makes its connection.
func (p *peer) dial(ctx context.Context, s *session, address string, at place, by dialer) error {
	within, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	raw, err := p.reach(within, address, by)
	if err != nil {
		return err
	}
	if err := p.e.call(within, raw, p, s, at); err != nil {
		raw.Close()
		return err
	}
	return nil
}

// reach connects to the peer; if its name cannot be resolved just now, to where it was last.
func (p *peer) reach(ctx context.Context, address string, by dialer) (net.Conn, error) {
	raw, err := by.Dial(ctx, address)
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) && last != "" && ctx.Err() == nil {
		raw, err = by.Dial(ctx, last)
	}
	if err != nil {
		return nil, err
	}
	if a := raw.RemoteAddr(); a != nil {
		p.mu.Lock()
		p.last = a.String()
		p.mu.Unlock()
	}
	return raw, nil
}
