package handover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/wait"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

var (
	// ErrMoved is why a connection ends here that another process carries on.
	ErrMoved = errors.New("proxy: another process carries the connection on")
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

// Again waits until a connection at rest may go on, and returns its next stream; GoesOn must follow. It is ErrMoved if
// another process carries the connection on. unsent: this process alone has some of the app's bytes.
func (t *Table) Again(s *Seat, c Conn, unsent bool) (Stream, error) {
	t.rests(s, unsent)
	for {
		if err := t.hold(s, c); err != nil {
			return nil, err
		}
		if stream, err := t.next(s, c); !errors.Is(err, ErrMoving) {
			return stream, err
		}
	}
}

// next returns the next stream of a connection at rest. It is ErrMoving if the connection is to be held.
func (t *Table) next(s *Seat, c Conn) (Stream, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	t.mu.Lock()
	s.waits = time.Now()
	t.mu.Unlock()
	go func() {
		select {
		case <-c.Done():
			cancel(nil)
		case <-ctx.Done():
		}
	}()
	go func() {
		if t.late(ctx, s) {
			cancel(errNotResumed)
		}
	}()
	if s.Opener {
		return t.reopen(ctx, s)
	}
	return t.reopened(ctx, s)
}

// late returns true once a connection has waited for its next stream for Config.Answer. The time in which the peer's
// process is being replaced does not count, nor the time before: how long that takes is up to the peer's settings.
// false: ctx has ended.
func (t *Table) late(ctx context.Context, s *Seat) bool {
	for ctx.Err() == nil {
		t.mu.Lock()
		m, left := t.moves[s.Key.Peer], t.config.Answer-time.Since(s.waits)
		t.mu.Unlock()
		switch {
		case m != nil:
			select {
			case <-m.ended:
			case <-ctx.Done():
			}
		case left > 0:
			wait.For(ctx, left)
		default:
			return true
		}
	}
	return false
}

// hold keeps a connection at rest until it is decided which process carries it on. Only a connection that is held can
// be handed over: one that has asked for its next stream may have it at any moment. One whose app's bytes wait here
// must go on first, and comes to rest again.
func (t *Table) hold(s *Seat, c Conn) error {
	for {
		t.mu.Lock()
		h := t.handing
		if s.unsent {
			h = nil
		}
		if s.held = h != nil; s.held {
			t.changed()
		}
		t.mu.Unlock()
		if h == nil {
			return nil
		}
		select {
		case <-h.decided:
		case <-c.Done():
		}
		select {
		case <-h.decided:
			if h.moved {
				return ErrMoved
			}
		default:
			return errNotResumed
		}
	}
}

// unheld returns a context that ends with ctx, or when the connection is to be held.
func (t *Table) unheld(ctx context.Context, s *Seat) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	begun := t.begun
	if s.unsent {
		begun = nil
	}
	t.mu.Unlock()
	go func() {
		select {
		case <-begun:
			cancel(ErrMoving)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// reopen resumes a connection that this side has opened. It is ErrMoving if the connection is to be held; an opening
// that is under way is not withdrawn for that, since the peer may have taken it already.
func (t *Table) reopen(ctx context.Context, s *Seat) (Stream, error) {
	waits, cancel := t.unheld(ctx, s)
	defer cancel()
	for pause := firstAgain; ; pause = min(2*pause, lastAgain) {
		stream, err := t.config.Open(ctx, s.Key.Peer, frame.AppendResume(nil, s.Key.Tag))
		var refused *tunnel.RefusedError
		switch {
		case err == nil:
			return stream, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case errors.Is(err, tunnel.ErrPeerDown) && t.config.Await != nil:
			_ = t.config.Await(waits, s.Key.Peer) // the next Open says why there is none
		case errors.As(err, &refused) && (refused.Code == frame.RefusedUnknown || refused.Code == frame.RefusedBadOpening): // any other refusal may pass
			return nil, fmt.Errorf("%w: %w", errNotResumed, err)
		}
		wait.For(waits, pause)
		if waits.Err() != nil {
			return nil, context.Cause(waits)
		}
	}
}

// reopened waits for the peer to resume a connection that it has opened, for as long as the peer has it. It is
// ErrMoving if the connection is to be held.
func (t *Table) reopened(ctx context.Context, s *Seat) (Stream, error) {
	ctx, stop := t.unheld(ctx, s)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if t.abandoned(ctx, s) {
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

// abandoned asks the peer now and then whether it still has a connection that it has opened. It returns true once the
// peer has not: the process that had it has failed. So the app need not wait until ctx ends, which outlasts an outage
// of the WAN.
func (t *Table) abandoned(ctx context.Context, s *Seat) bool {
	for ctx.Err() == nil {
		if m := t.MoveOf(s.Key.Peer); m != nil {
			select {
			case <-m.ended:
			case <-ctx.Done():
			}
		}
		wait.For(ctx, askAgain)
		if t.config.Await != nil {
			_ = t.config.Await(ctx, s.Key.Peer)
		}
		stream, err := t.config.Open(ctx, s.Key.Peer, frame.AppendResume(nil, s.Key.Tag))
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
