package handover

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// refusal returns the code by which accept refuses an opening; 0: it waits, or accepts.
func refusal(t *testing.T, accept func(in Incoming, yes func() Stream)) (code tunnel.Code) {
	t.Helper()
	in := &incoming{t: t, answer: make(chan error, 1), withdrawn: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		accept(in, func() Stream {
			here, there := net.Pipe()
			here.Close()
			return &stream{Conn: there, t: t}
		})
		close(done)
	}()
	synctest.Wait()
	close(in.withdrawn)
	<-done
	var refused *tunnel.RefusedError
	select {
	case err := <-in.answer:
		errors.As(err, &refused)
		return refused.Code
	default:
		return 0
	}
}

// Only the side that has opened a connection resumes it, and one opening at a time waits for the connection to rest.
func TestOpeningsThatResumeNothing(t *testing.T) {
	for name, c := range map[string]struct {
		opener, asked bool
		number        uint64
		want          tunnel.Code
	}{
		"the opener's":       {number: 5},
		"of the other side":  {opener: true, number: 5, want: frame.RefusedMoving},
		"a second":           {asked: true, number: 5, want: frame.RefusedMoving},
		"of no connection":   {number: 6, want: frame.RefusedUnknown},
		"of none with a tag": {number: 0, want: frame.RefusedBadOpening},
	} {
		synctest.Test(t, func(t *testing.T) {
			near, _ := newSites(t)
			s := NewSeat(newConn(t), Key{"far", frame.Tag{Number: 5}}, c.opener, frame.Opening{})
			if !near.Enter(s) {
				t.Fatal("it does not enter")
			}
			s.asked.Store(c.asked)
			opening := frame.AppendResume(nil, frame.Tag{Number: c.number, Mine: true})
			if got := refusal(t, func(in Incoming, yes func() Stream) { near.AcceptResumed("far", opening, in, yes) }); got != c.want {
				t.Errorf("%s: refused by %v, want %v", name, got, c.want)
			}
			near.Leave(s)
		})
	}
}

// While a peer's process is being replaced, no other process of the peer may ask for the same.
func TestOneMoveAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _ := newSites(t)
		near.moves["far"] = &Move{ended: make(chan struct{})}
		for peer, want := range map[string]tunnel.Code{"far": frame.RefusedBusy, "another": 0} {
			if got := refusal(t, func(in Incoming, yes func() Stream) { near.AcceptRest(peer, in, yes) }); got != want {
				t.Errorf("%s: refused by %v, want %v", peer, got, want)
			}
		}
	})
}

// A connection that no tag names could not be handed over: it does not enter while that is under way, unless its peer
// knows no hand-over.
func TestUnnamedConnectionsDoNotEnter(t *testing.T) {
	for _, c := range []struct {
		number        uint64
		handing, late bool // late: the peer's version knows no hand-over
		want          bool
	}{{5, false, false, true}, {5, true, false, true}, {0, false, false, true}, {0, true, false, false}, {0, true, true, true}} {
		near, _ := newSites(t)
		if c.late {
			near.config.PeerCodecs = func(string) []string { return nil }
		}
		if c.handing {
			near.handing = &handing{decided: make(chan struct{}), shut: map[string]bool{}}
		}
		if got := near.Enter(NewSeat(newConn(t), Key{"far", frame.Tag{Number: c.number}}, true, frame.Opening{})); got != c.want {
			t.Errorf("%+v: it enters: %v", c, got)
		}
	}
}

// A connection at rest whose app's bytes wait in this process alone is not held for another process: it goes on first.
func TestUnsentBytesGoOnFirst(t *testing.T) {
	for _, unsent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			near, _ := newSites(t)
			c := newConn(t)
			s := NewSeat(c, Key{"far", frame.Tag{Number: 5}}, true, frame.Opening{})
			near.Enter(s)
			near.Table.rests(s, unsent)
			h := &handing{decided: make(chan struct{}), shut: map[string]bool{}}
			near.Table.mu.Lock()
			near.handing = h
			close(near.begun)
			near.Table.mu.Unlock()
			ctx, cancel := near.unheld(t.Context(), s)
			held := make(chan error, 1)
			go func() { held <- near.hold(s, c) }()
			time.Sleep(time.Second)
			near.Table.mu.Lock()
			seated := s.held
			near.Table.mu.Unlock()
			if waits := len(held) == 0; waits == unsent || seated == unsent {
				t.Errorf("unsent bytes: %v; it is held: %v", unsent, waits)
			}
			if moving := errors.Is(context.Cause(ctx), ErrMoving); moving == unsent {
				t.Errorf("unsent bytes: %v; its wait for a stream ends: %v", unsent, moving)
			}
			cancel()
			near.Table.mu.Lock()
			near.handing = nil
			near.Table.mu.Unlock()
			close(h.decided)
			if err := <-held; err != nil {
				t.Error(err)
			}
		})
	}
}

// Refusals by which a peer's state may be the reason are no ill will.
func TestWilfulRefusals(t *testing.T) {
	for code, want := range map[tunnel.Code]bool{tunnel.CodeDraining: false, tunnel.CodeMemory: false, frame.RefusedBusy: false, frame.RefusedUnknown: true, frame.RefusedBadOpening: true} {
		if wilful(code) != want {
			t.Errorf("code %v: %v", code, !want)
		}
	}
}
