package tunnel

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Two proxies that show one site's certificate would take the session from each other for ever, and the jobs of both
// would lose their connections each time. So a new incarnation of a peer is kept out as long as the one before answers
// PING. One that has restarted is let in at once: its kernel has ended the carriers of the process before, or says that
// it does not know them. Where a whole host is gone, silently, the answer is waited for.

const (
	answerWithin = 3 * time.Second // less than a handshake may take
	minAnswer    = 500 * time.Millisecond
	answerTimes  = 8 // times LinkState.Patience: long enough for a lost PING to leave three times
	answerLooked = 10 * time.Millisecond
	rivalStays   = time.Second // before the log speaks of it
)

// A rivalError says that two proxies show one site's certificate.
type rivalError struct {
	site             string
	holder, newcomer net.Addr
}

func (e *rivalError) Error() string {
	return fmt.Sprintf("two proxies show the certificate of %s: that at %v is here and answers, that at %v is refused; end one of them, or give it a site and a certificate of its own",
		e.site, e.holder, e.newcomer)
}

// rival returns a rivalError if theirs, which has come over a connection with newcomer, is not the incarnation that
// this side has a session with, and that one is alive.
func (p *peer) rival(ctx context.Context, theirs incarnation, newcomer net.Addr) error {
	s := p.session()
	if known := s.known(); known == theirs || known == (incarnation{}) {
		return nil
	}
	if holder := s.answers(ctx); holder != nil {
		return &rivalError{p.name, holder, newcomer}
	}
	return nil
}

// answers sends PING on all carriers, and returns the address at the other end of one that answers in time; nil: none
// does.
func (s *session) answers(ctx context.Context) net.Addr {
	before, within := s.ask()
	for began := time.Now(); len(before) > 0 && ctx.Err() == nil && time.Since(began) < within; pause(ctx, answerLooked) {
		s.mu.Lock()
		here := s.carriers
		if s.err != nil {
			here = nil
		}
		gone := true
		for _, c := range here {
			pongs, asked := before[c]
			if asked && c.pongs > pongs {
				s.mu.Unlock()
				return c.link.RemoteAddr()
			}
			gone = gone && (!asked || c.link.State().Lost)
		}
		s.mu.Unlock()
		if gone {
			return nil
		}
	}
	return nil
}

// ask has PING sent on all carriers, and returns how often each was answered before, and how long the answers may take.
func (s *session) ask() (before map[*carrier]uint64, within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, within = make(map[*carrier]uint64), minAnswer
	for _, c := range s.carriers {
		before[c] = c.pongs
		if patience := c.link.State().Patience; patience > 0 {
			within = min(max(within, answerTimes*patience), answerWithin)
		} else {
			within = answerWithin
		}
		c.pingDue = true
		c.wake()
	}
	return before, within
}

// warned reports whether the log need not speak of s's rival: it was spoken of before, or has come just now. A rival
// dials every two seconds, for as long as it is there; after a restart at either side a dial for the session before may
// come once.
func (p *peer) warned(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rivalOf != s {
		p.rivalOf, p.rivalAt, p.rivalTold = s, time.Now(), false
	}
	if p.rivalTold || time.Since(p.rivalAt) < rivalStays {
		return true
	}
	p.rivalTold = true
	return false
}
