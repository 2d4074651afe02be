package tunnel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A peer is a configured peer and the session with it. There always is a session; it may be fresh.
type peer struct {
	home *home
	far
	id    string
	wasUp bool // an earlier peer of this name had a session
	stop  context.CancelFunc

	stopped <-chan struct{} // closed after stop

	mu        peerLock
	address   string
	last      string    // address that was reached last, for when names cannot be resolved
	sess      *session  // the current one
	rivalOf   *session  // that has a rival
	rivalAt   time.Time // when the rival came first
	rivalTold bool      // the log has told of it
	said      string    // the fault of a dial that the log has told last; "": the last dial was good
	next      *session  // a fresh one, which replaces it once the peer's new incarnation has shown itself

	up chan struct{} // closed when a session begins; nil: nobody waits for one
}

func newPeer(h *home, cfg Peer) *peer {
	p := &peer{home: h, id: cfg.ID, address: cfg.Dial}
	p.name, p.mem.buffers = cfg.Name, &h.mem
	p.kicks.begin()
	p.openings.begin()
	p.intake.begin()
	p.chooser = chooser{lone: h.cfg.Carriers == 1, peer: p.name, log: h.log, kicks: &p.kicks}
	if t, auto := h.transport.(*autoTransport); auto {
		p.chooser.auto, p.chooser.kinds = true, t.kinds()
	}
	p.sess = newSession(&h.near, &p.far)
	return p
}

// setAddress sets where the peer is dialed from now on. If that is another address than before, the choice of a carrier
// begins anew.
func (p *peer) setAddress(address string) {
	p.mu.Lock()
	if p.address != address {
		p.address = address
		p.chooser.change(func(c *choice) { c.forget(time.Now(), address) }) // under the lock: the choice is that address's
	}
	p.mu.Unlock()
	p.kicks.all()
}

// proved returns the choice of datagrams, if they have shown their rate, and the address that it is for.
func (p *peer) proved() (c choice, address string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok = p.chooser.proved()
	return c, p.address, ok
}

// dials returns where the peer is dialed.
func (p *peer) dials() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}

func (p *peer) session() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sess
}

// fresh returns the session that takes the place of the current one; the lock is held.
func (p *peer) fresh() *session {
	if p.next == nil {
		p.next = newSession(&p.home.near, &p.far)
	}
	return p.next
}

// fail ends a session, as session.fail does, and puts a fresh one in its place.
func (p *peer) fail(failed *session, reason error, text string) {
	was, fails := failed.fail(reason, text)
	if !fails {
		return
	}
	p.mu.Lock()
	if p.sess == failed {
		p.sess = p.fresh()
		p.next = nil
	} else if p.next == failed {
		p.next = nil
	}
	p.mu.Unlock()
	p.kicks.all()
	if was.lived && !p.home.closing.Load() {
		p.home.sessionLost(p.name, reason, was.streams, was.announced)
	}
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
		p.fail(old, errors.New("the peer began a new one"), "")
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

// down returns the error for a caller that asks for a session where there is none.
func (p *peer) down() error {
	if !p.everUp() {
		return fmt.Errorf("%w: %s", ErrNeverUp, p.name)
	}
	return fmt.Errorf("%w: %s", ErrPeerDown, p.name)
}

// everUp reports whether there has been a session with the site of this name since the Endpoint was made.
func (p *peer) everUp() bool { return p.wasUp || p.sessions.Load() > 0 }
