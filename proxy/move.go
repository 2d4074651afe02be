package proxy

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// HandOver is the name under which hellos list, among codecs, that a proxy's connections can rest while a process of its peer is replaced.
const HandOver = "hand-over"

// canRest reports whether a peer's connections can rest.
func (p *Proxy) canRest(peer string) bool {
	return p.config.PeerCodecs == nil || slices.Contains(p.config.PeerCodecs(peer), HandOver)
}

// moveOf returns the move of a peer; nil: there is none.
func (p *Proxy) moveOf(peer string) *move {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moves[peer]
}

// acceptRest has all connections with a peer come to rest, and answers once they are. It returns when the peer carries on, or when there is a session with
// the process that has taken its place.
func (p *Proxy) acceptRest(peer string, in Incoming, accept func() Stream) {
	m := &move{ended: make(chan struct{})}
	p.mu.Lock()
	if p.moves[peer] != nil {
		p.mu.Unlock()
		in.Refuse(frame.RefusedBusy, "the peer is being replaced already")
		return
	}
	p.moves[peer] = m
	for s := range p.live {
		if s.key.peer == peer {
			p.askForRest(s)
		}
	}
	p.mu.Unlock()
	p.config.Log.Info("the peer's process is about to be replaced: its connections come to rest", "peer", peer)
	err := p.rest(peer, accept())
	if err != nil && p.config.Await != nil { // the session is lost, or will be at once
		ctx, cancel := context.WithTimeout(p.opening, p.config.Answer)
		_ = p.config.Await(ctx, peer)
		cancel()
	}
	p.mu.Lock()
	delete(p.moves, peer)
	for s := range p.live {
		if s.key.peer == peer {
			s.waits = time.Now()
		}
	}
	p.mu.Unlock()
	close(m.ended)
	p.config.Log.Info("connections with the peer go on", "peer", peer)
}

// rest answers the peer's Rest frame once all connections with it are at rest, and returns nil when the stream has ended in order: the peer carries on.
func (p *Proxy) rest(peer string, stream Stream) error {
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
		err = p.restful(peer, lost)
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
func (p *Proxy) restful(peer string, lost <-chan error) error {
	for {
		p.mu.Lock()
		n, change := p.restless(peer), p.change
		p.mu.Unlock()
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

// moving reports whether an opening has failed since the peer's process is being replaced, by m if that was known before, and then waits until there is
// the new one, or until ctx ends.
func (p *Proxy) moving(ctx context.Context, peer string, m *move, err error) bool {
	var refused *tunnel.RefusedError
	errors.As(err, &refused)
	told := refused != nil && refused.Code == frame.RefusedMoving
	if !told && !errors.Is(err, tunnel.ErrSessionLost) && !errors.Is(err, tunnel.ErrDraining) && (refused == nil || refused.Code != tunnel.CodeDraining) {
		return false
	}
	if m == nil {
		m = p.moveOf(peer)
	}
	switch {
	case m != nil:
		select {
		case <-m.ended:
		case <-ctx.Done():
		}
	case told: // it has carried on meanwhile
		wait(ctx, lastAgain/10)
	default:
		return false
	}
	return ctx.Err() == nil
}
