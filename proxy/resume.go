package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A connection comes to rest when a proxy at one of its ends is to be replaced by another process (handover.go): both senders send what they have
// read, and a Rest frame behind it; both receivers deliver everything up to that frame. Nothing of the connection is under way then, in neither proxy,
// and its stream ends. It goes on over a new stream, by which the side that has opened it resumes it, be that of the same session or of one with the new
// process. Slots are declared anew, and values that were shared are put anew where the session is another; parsers, residuals and the app's socket stay.

var (
	// errMoved is why a connection ends here that another process carries on.
	errMoved = errors.New("proxy: another process carries the connection on")
	// errNotResumed is why a connection at rest is reset that nobody resumes.
	errNotResumed = errors.New("proxy: the connection was at rest for a change of the peer's process, and was not resumed")
)

const (
	// Pauses before a connection at rest is asked for again.
	firstAgain = 10 * time.Millisecond
	lastAgain  = time.Second
	// askAgain is the pause before the peer is asked whether it still has a connection at rest.
	askAgain = 10 * time.Second
)

// again waits until a connection at rest may go on, and returns it with its new stream. unsent: this process alone has some of the app's bytes.
func (p *Proxy) again(s *seat, c *path.Conn, unsent bool) (*path.Conn, error) {
	p.rests(s, unsent)
	for {
		if err := p.hold(s, c); err != nil {
			return nil, err
		}
		stream, err := p.next(s, c)
		if errors.Is(err, errMoving) {
			continue
		}
		if err != nil {
			return nil, err
		}
		n := c.Resumed(stream)
		if p.config.PeerCodecs != nil {
			n.PeerCodecs = p.config.PeerCodecs(s.key.peer) // its process may be of another version
		}
		p.goesOn(s, n)
		return n, nil
	}
}

// next returns the next stream of a connection at rest. It is errMoving if the connection is to be held.
func (p *Proxy) next(s *seat, c *path.Conn) (Stream, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	p.mu.Lock()
	s.waits = time.Now()
	p.mu.Unlock()
	go func() {
		select {
		case <-c.Gone:
			cancel(nil)
		case <-ctx.Done():
		}
	}()
	go func() {
		if p.late(ctx, s) {
			cancel(errNotResumed)
		}
	}()
	if s.own == parser.Client {
		return p.reopen(ctx, s)
	}
	return p.reopened(ctx, s)
}

// late returns true once a connection has waited for its next stream for Config.Answer. The time in which the peer's process is being replaced does not count,
// nor the time before: how long that takes is up to the peer's settings. false: ctx has ended.
func (p *Proxy) late(ctx context.Context, s *seat) bool {
	for ctx.Err() == nil {
		p.mu.Lock()
		m, left := p.moves[s.key.peer], p.config.Answer-time.Since(s.waits)
		p.mu.Unlock()
		switch {
		case m != nil:
			select {
			case <-m.ended:
			case <-ctx.Done():
			}
		case left > 0:
			wait(ctx, left)
		default:
			return true
		}
	}
	return false
}

// hold keeps a connection at rest until it is decided which process carries it on. Only a connection that is held can be handed over: one that
// has asked for its next stream may have it at any moment. One whose app's bytes wait here must go on first, and comes to rest again.
func (p *Proxy) hold(s *seat, c *path.Conn) error {
	for {
		p.mu.Lock()
		h := p.handing
		if s.unsent {
			h = nil
		}
		if s.held = h != nil; s.held {
			p.changed()
		}
		p.mu.Unlock()
		if h == nil {
			return nil
		}
		select {
		case <-h.decided:
		case <-c.Gone:
		}
		select {
		case <-h.decided:
			if h.moved {
				return errMoved
			}
		default:
			return errNotResumed
		}
	}
}

// unheld returns a context that ends with ctx, or when the connection is to be held.
func (p *Proxy) unheld(ctx context.Context, s *seat) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	begun := p.begun
	if s.unsent {
		begun = nil
	}
	p.mu.Unlock()
	go func() {
		select {
		case <-begun:
			cancel(errMoving)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// reopen resumes a connection that this side has opened. It is errMoving if the connection is to be held; an opening that is under way is not withdrawn
// for that, since the peer may have taken it already.
func (p *Proxy) reopen(ctx context.Context, s *seat) (Stream, error) {
	waits, cancel := p.unheld(ctx, s)
	defer cancel()
	for pause := firstAgain; ; pause = min(2*pause, lastAgain) {
		stream, err := p.config.Open(ctx, s.key.peer, frame.AppendResume(nil, s.key.tag))
		var refused *tunnel.RefusedError
		switch {
		case err == nil:
			return stream, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case errors.Is(err, tunnel.ErrPeerDown) && p.config.Await != nil:
			_ = p.config.Await(waits, s.key.peer) // the next Open says why there is none
		case errors.As(err, &refused) && (refused.Code == frame.RefusedUnknown || refused.Code == frame.RefusedBadOpening): // any other refusal may pass
			return nil, fmt.Errorf("%w: %w", errNotResumed, err)
		}
		wait(waits, pause)
		if waits.Err() != nil {
			return nil, context.Cause(waits)
		}
	}
}

// reopened waits for the peer to resume a connection that it has opened, for as long as the peer has it. It is errMoving if the connection is to be held.
func (p *Proxy) reopened(ctx context.Context, s *seat) (Stream, error) {
	ctx, stop := p.unheld(ctx, s)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if p.abandoned(ctx, s) {
			cancel(errNotResumed)
		}
	}()
	reply := make(chan Stream)
	select {
	case s.wants <- reply:
		return <-reply, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// abandoned asks the peer now and then whether it still has a connection that it has opened. It returns true once the peer has not: the process that
// had it has failed. So the app need not wait until ctx ends, which outlasts an outage of the WAN.
func (p *Proxy) abandoned(ctx context.Context, s *seat) bool {
	for ctx.Err() == nil {
		if m := p.moveOf(s.key.peer); m != nil {
			select {
			case <-m.ended:
			case <-ctx.Done():
			}
		}
		wait(ctx, askAgain)
		if p.config.Await != nil {
			_ = p.config.Await(ctx, s.key.peer)
		}
		stream, err := p.config.Open(ctx, s.key.peer, frame.AppendResume(nil, s.key.tag))
		var refused *tunnel.RefusedError
		switch {
		case err == nil: // only the side that has opened the connection resumes it
			stream.Reset(frame.ResetByFrames)
			return true
		case errors.As(err, &refused) && refused.Code == frame.RefusedUnknown:
			return ctx.Err() == nil
		}
	}
	return false
}

// acceptResumed answers an opening by which the peer resumes a connection that it has opened, once the connection is at rest here too. To a peer that waits
// for this side to resume one, the answer is not yet, or never.
func (p *Proxy) acceptResumed(peer string, opened []byte, in Incoming, accept func() Stream) {
	tag, err := frame.ParseResume(opened)
	if err != nil {
		in.Refuse(frame.RefusedBadOpening, err.Error())
		return
	}
	p.mu.Lock()
	s := p.seats[seatKey{peer, tag}]
	p.mu.Unlock()
	switch {
	case s == nil:
		p.refuseResumed(in)
		return
	case s.own == parser.Client:
		in.Refuse(frame.RefusedMoving, "the connection is about to be resumed")
		return
	}
	if !s.asked.CompareAndSwap(false, true) { // so that the openings that wait are no more than the connections
		in.Refuse(frame.RefusedMoving, "another opening is about to resume the connection")
		return
	}
	defer s.asked.Store(false)
	select {
	case reply := <-s.wants:
		reply <- accept()
	case <-s.ended:
		p.refuseResumed(in)
	case <-in.Done():
	}
}

// refuseResumed answers no: the connection has ended here, or another process has it.
func (p *Proxy) refuseResumed(in Incoming) {
	p.mu.Lock()
	h := p.handing
	p.mu.Unlock()
	if h != nil {
		in.Refuse(frame.RefusedMoving, "another process takes over")
		return
	}
	in.Refuse(frame.RefusedUnknown, "no such connection is at rest here")
}
