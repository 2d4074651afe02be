package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// HandOver brings all connections to rest. It returns an error if they are not at rest when ctx ends, or if they cannot
// rest because a peer's version does not know rest or a connection bypasses the tunnel. After an error everything goes
// on as before. If patience is not 0, HandOver resets connections that do not come to rest within patience, and all
// connections with a peer that does not answer.
func (t *Table) HandOver(ctx context.Context, patience time.Duration) (*HandingOver, error) {
	h := &HandingOver{t, &handing{decided: make(chan struct{}), waiting: map[*net.TCPConn]frame.Opening{}, shut: map[string]bool{}, expected: map[string]bool{}}}
	t.mu.Lock()
	busy := t.handing != nil || t.draining
	if !busy {
		t.handing = h.handing
		close(t.begun)
	}
	t.mu.Unlock()
	if busy {
		return nil, errors.New("proxy: it ends, or is being replaced already")
	}
	var cancel context.CancelFunc
	h.patience, cancel = patienceOf(ctx, patience)
	defer cancel()
	if err := h.rest(ctx); err != nil {
		err = h.failed(ctx, err)
		h.CarryOn()
		return nil, err
	}
	return h, nil
}

// rest asks peers and connections for rest, and waits for it.
func (h *HandingOver) rest(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	peers, err := h.askable()
	if err != nil {
		return err
	}
	atRest := make(chan struct{}) // closed once all connections are, here
	answers, err := h.askPeers(ctx, cancel, peers, atRest)
	if err != nil {
		return err
	}
	grace := h.askConnections()
	defer grace.Stop()
	if err := h.awaitRest(ctx); err != nil {
		return err
	}
	for _, peer := range peers {
		h.expect(peer, true)
	}
	close(atRest)
	for range peers {
		select {
		case err := <-answers:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("proxy: the connections at a peer did not come to rest in time: does an app there not read? %w", context.Cause(ctx))
		}
	}
	return nil
}

// askPeers asks all peers for rest, and returns, once each has been asked, the channel of their answers. The error of a
// peer cancels the asking of the others. atRest is closed once all connections are at rest here.
func (h *HandingOver) askPeers(ctx context.Context, cancel context.CancelCauseFunc, peers []string, atRest <-chan struct{}) (answers chan error, err error) {
	requests := make(chan error, len(peers))
	answers = make(chan error, len(peers))
	for _, peer := range peers {
		h.expect(peer, true)
		go func() {
			s, err := h.ask(ctx, peer)
			if err == nil {
				h.expect(peer, false)
			}
			requests <- err
			if s != nil {
				if err = h.answered(ctx, peer, s, atRest); err != nil {
					cancel(err)
				}
			}
			answers <- err
		}()
	}
	for range peers { // all of them: CarryOn must know each stream
		if e := <-requests; e != nil && err == nil {
			err = e
			cancel(e)
		}
	}
	return answers, err
}

// askConnections asks all connections here for rest. The timer that it returns ends the openings that are under way for
// too long.
func (h *HandingOver) askConnections() *time.Timer {
	t := h.table
	t.mu.Lock()
	for s := range t.live {
		t.askForRest(s)
	}
	t.mu.Unlock()
	return time.AfterFunc(openGrace, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.handing == h.handing {
			t.stopAsking(ErrMoving)
		}
	})
}

// awaitRest waits until all connections are at rest here, and no opening is under way.
func (h *HandingOver) awaitRest(ctx context.Context) error {
	t := h.table
	var tired <-chan struct{}
	if h.patience != nil {
		tired = h.patience[resting].Done()
	}
	for {
		t.mu.Lock()
		n, underWay, change, cannot := t.notHeld(), t.underWay, t.change, t.cannotRest()
		if n+underWay == 0 {
			t.stopAsking(ErrMoving) // openings that begin now are the other process's
		}
		t.mu.Unlock()
		if cannot != nil {
			return cannot
		}
		if n+underWay == 0 {
			return nil
		}
		select {
		case <-change:
		case <-tired:
			tired = nil
			h.resetUnheld()
		case <-ctx.Done():
			return fmt.Errorf("proxy: %d connections did not come to rest in time, and %d were being opened: does an app not read? %w", n, underWay, context.Cause(ctx))
		}
	}
}
