package handover

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/wait"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// AcceptRest has all connections with a peer come to rest, and answers once they are. It returns when the peer carries
// on, or when there is a session with the process that has taken its place.
func (t *Table) AcceptRest(peer string, in Incoming, accept func() Stream) {
	m := &Move{ended: make(chan struct{})}
	t.mu.Lock()
	if t.moves[peer] != nil {
		t.mu.Unlock()
		in.Refuse(frame.RefusedBusy, "the peer is being replaced already")
		return
	}
	t.moves[peer] = m
	for s := range t.live {
		if s.Key.Peer == peer {
			t.askForRest(s)
		}
	}
	t.mu.Unlock()
	t.config.Log.Info("the peer's process is about to be replaced: its connections come to rest", "peer", peer)
	err := t.rest(peer, accept())
	if err != nil && t.config.Await != nil { // the session is lost, or will be at once
		ctx, cancel := context.WithTimeout(t.until, t.config.Answer)
		_ = t.config.Await(ctx, peer)
		cancel()
	}
	t.mu.Lock()
	delete(t.moves, peer)
	for s := range t.live {
		if s.Key.Peer == peer {
			s.waits = time.Now()
		}
	}
	t.mu.Unlock()
	close(m.ended)
	t.config.Log.Info("connections with the peer go on", "peer", peer)
}

// rest answers the peer's Rest frame once all connections with it are at rest, and returns nil when the stream has
// ended in order: the peer carries on.
func (t *Table) rest(peer string, stream Stream) error {
	defer stream.Close()
	frames := restReader(stream)
	f, err := frames.Next()
	if err == nil && f.Kind != frame.Rest {
		err = frame.ErrFrame
	}
	if err == nil {
		lost := make(chan error, 1)
		go func() {
			_, err := frames.Next()
			lost <- err
		}()
		err = t.restful(peer, lost)
		if err == nil {
			if _, err = stream.Write(frame.Append(nil, frame.Frame{Kind: frame.Rest})); err == nil {
				err = <-lost
			}
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, frame.ErrFrame):
		stream.Reset(frame.ResetByFrames)
		return nil
	}
	return err
}

// restful waits until all connections with a peer are at rest, or for an error to come by lost.
func (t *Table) restful(peer string, lost <-chan error) error {
	for {
		t.mu.Lock()
		n, change := t.restless(peer), t.change
		t.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-change:
		case err := <-lost:
			return err
		}
	}
}

// restReader returns a reader of the frames of a stream on which there are only Rest frames.
func restReader(s Stream) *frame.Reader {
	return &frame.Reader{Source: s, Limit: func(frame.Kind, uint32) (int, error) { return 0, nil }}
}

// Moving reports whether an opening has failed since the peer's process is being replaced, by m if that was known
// before, and then waits until there is the new one, or until ctx ends.
func (t *Table) Moving(ctx context.Context, peer string, m *Move, err error) bool {
	var refused *tunnel.RefusedError
	errors.As(err, &refused)
	told := refused != nil && refused.Code == frame.RefusedMoving
	if !told && !errors.Is(err, tunnel.ErrSessionLost) && !errors.Is(err, tunnel.ErrDraining) && (refused == nil || refused.Code != tunnel.CodeDraining) {
		return false
	}
	if m == nil {
		m = t.MoveOf(peer)
	}
	switch {
	case m != nil:
		select {
		case <-m.ended:
		case <-ctx.Done():
		}
	case told: // it has carried on meanwhile
		wait.For(ctx, lastAgain/10)
	default:
		return false
	}
	return ctx.Err() == nil
}
