package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/wait"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// openGrace is how long openings that are under way at the begin of a hand-over may take; the others are withdrawn, and
// begin anew in the new process.
const openGrace = 2 * time.Second

// askable returns the peers whose connections can rest. Some may have none open, but some under way.
func (h *HandingOver) askable() (peers []string, err error) {
	t := h.table
	for _, peer := range t.config.Peers() {
		if t.canRest(peer) {
			peers = append(peers, peer)
		}
	}
	t.mu.Lock()
	unnamed := map[string]bool{}
	for s := range t.live {
		if !s.named && t.canRest(s.Key.Peer) {
			unnamed[s.Key.Peer] = true
		}
	}
	t.mu.Unlock()
	for peer := range unnamed {
		h.shutOut(peer, errUnnamed)
	}
	peers = slices.DeleteFunc(peers, func(peer string) bool { return unnamed[peer] })
	t.mu.Lock()
	defer t.mu.Unlock()
	return peers, t.cannotRest()
}

// errUnnamed is the reason for which a peer's connections are reset: versions with hand-overs give each connection a
// tag of its own.
var errUnnamed = errors.New("it has opened connections with no tag, or with one that another connection has")

// ask opens the stream on which a peer is asked for rest. It returns nil without an error if there is no session with
// the peer, or if no connection with it is open and it does not answer within openGrace: such a peer must not hold a
// hand-over up.
func (h *HandingOver) ask(ctx context.Context, peer string) (Stream, error) {
	t, began := h.table, time.Now()
	for pause := firstAgain; ; pause = min(2*pause, lastAgain) {
		s, err := h.askOnce(h.patience.wait(ctx, asked), peer)
		waits := t.carriesTo(peer) || time.Since(began) < openGrace
		var refused *tunnel.RefusedError
		switch {
		case err == nil:
			t.mu.Lock()
			h.streams = append(h.streams, s)
			t.mu.Unlock()
			return s, nil
		case errors.Is(err, tunnel.ErrPeerDown):
			return nil, nil
		case h.patience.over(ctx, asked):
			h.shutOut(peer, errTardy)
			return nil, nil
		case ctx.Err() == nil && waits && errors.As(err, &refused) && refused.Code == frame.RefusedBusy: // the end of the last hand-over has not reached it
			wait.For(ctx, pause)
		case ctx.Err() == nil && refused != nil && wilful(refused.Code):
			h.shutOut(peer, err)
			return nil, nil
		case ctx.Err() == nil && !t.carriesTo(peer):
			h.goesWithout(peer, err)
			return nil, nil
		case ctx.Err() == nil && h.patience != nil: // whatever its reason, the peer has until the end of the stage
			wait.For(ctx, pause)
		default:
			return nil, fmt.Errorf("proxy: asking %s for rest: %w", peer, err)
		}
	}
}

// askOnce is one attempt of ask. One at a peer with which there is no connection lasts at most openGrace.
func (h *HandingOver) askOnce(ctx context.Context, peer string) (Stream, error) {
	if !h.table.carriesTo(peer) {
		within, cancel := context.WithTimeout(ctx, openGrace)
		defer cancel()
		ctx = within
	}
	return h.table.config.Open(ctx, peer, []byte{frame.OpeningRest})
}

func (h *HandingOver) goesWithout(peer string, err error) {
	h.table.config.Log.Warn("a peer did not answer the request for rest; the hand-over goes on, since no connection with it is open", "peer", peer, "err", err)
}

// wilful reports whether no peer that knows hand-overs refuses rest by this code, whatever its state.
func wilful(code tunnel.Code) bool {
	switch code {
	case tunnel.CodeDraining, tunnel.CodeMemory, frame.RefusedBusy:
		return false
	}
	return true
}

// shutOut resets all connections of a peer that said it knows hand-overs, and acts against them: no peer may keep this
// process, perhaps with a hole that the next one has not, in its place. It gets new connections from the process that
// runs after the hand-over.
func (h *HandingOver) shutOut(peer string, why error) {
	t := h.table
	t.mu.Lock()
	h.shut[peer] = true
	reset := t.doom(func(s *Seat) bool { return s.Key.Peer == peer })
	t.changed()
	t.mu.Unlock()
	n := reset()
	t.config.Log.Warn("a peer's connections are reset: it has refused them the rest that a hand-over needs", "peer", peer, "connections", n, "err", why)
}

// answered waits until a peer's connections are at rest, once all are here. A peer with which none is open has
// openGrace for its answer.
func (h *HandingOver) answered(ctx context.Context, peer string, s Stream, atRest <-chan struct{}) error {
	t := h.table
	rests := make(chan error, 1)
	go func() { rests <- restsAt(ctx, s, atRest) }()
	var late <-chan time.Time
	patience := h.patience.wait(ctx, rested)
	for here := atRest; ; {
		select {
		case err := <-rests:
			if err == nil {
				h.expect(peer, false)
			}
			if err != nil && h.patience != nil && ctx.Err() == nil && t.carriesTo(peer) {
				h.shutOut(peer, err)
				return nil
			}
			if err == nil || t.carriesTo(peer) {
				if err != nil {
					err = fmt.Errorf("%w (peer %s)", err, peer)
				}
				return err
			}
			h.goesWithout(peer, err)
			return nil
		case <-here:
			if here = nil; !t.carriesTo(peer) {
				late = time.After(openGrace)
			}
		case <-late:
			h.goesWithout(peer, errors.New("no answer"))
			return nil
		case <-patience.Done():
			if h.patience.over(ctx, rested) {
				h.shutOut(peer, errTardy)
				return nil
			}
			patience = context.Background() // the answer of restsAt follows
		}
	}
}

// restsAt tells a peer once all connections are at rest here, and waits until they are there.
func restsAt(ctx context.Context, s Stream, atRest <-chan struct{}) error {
	told := make(chan error, 1)
	go func() {
		var err error
		select {
		case <-atRest:
			_, err = s.Write(frame.Append(nil, frame.Frame{Kind: frame.Rest}))
		case <-ctx.Done():
		}
		told <- err
	}()
	f, err := restReader(s).Next()
	if err == nil && f.Kind != frame.Rest {
		err = frame.ErrFrame
	}
	if err != nil {
		return fmt.Errorf("proxy: the session with a peer was lost meanwhile: %w", noEOF(err))
	}
	if err := <-told; err != nil {
		return fmt.Errorf("proxy: asking for rest: %w", err)
	}
	return nil
}

// noEOF makes the end of a stream an error where more must come.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
