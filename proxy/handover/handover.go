package handover

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/gradproxy/gradproxy/proxy/app"
)

// A HandingOver is the time in which a Table's connections are at rest, so that another process can take them over. It
// ends with CarryOn or Leave.
type HandingOver struct {
	table *Table
	*handing
}

// A Handed is a connection as another process takes it over.
type Handed struct {
	Peer   string         // "": the connection is not open yet, and is to be served as if it came only now
	Client netip.AddrPort // as the app sees them
	Server netip.AddrPort
	Number int    // of the opening
	Tag    uint64 // of the opening
	Opener bool   // this side has opened it
	FIN    bool   // the far app's FIN was passed on

	File *os.File `json:"-"` // the app's socket
}

// Connections returns the connections, with descriptors that the caller must close.
func (h *HandingOver) Connections() (all []Handed, err error) {
	t := h.table
	t.mu.Lock()
	defer t.mu.Unlock()
	h.listed = true
	for s := range t.live {
		if s.doomed {
			continue
		}
		o := &s.Opening
		f, err := s.conn.File()
		if err != nil {
			return all, err
		}
		all = append(all, Handed{Peer: s.Key.Peer, Client: o.Client, Server: o.Server, Number: o.Number, Tag: s.Key.Tag.Number, Opener: s.Opener,
			FIN: s.conn.FINSent(), File: f})
	}
	for c, o := range h.waiting {
		f, err := app.Plain(c).File()
		if err != nil {
			return all, err
		}
		all = append(all, Handed{Client: o.Client, Server: o.Server, File: f})
	}
	return all, nil
}

// CarryOn has this process carry its connections on.
func (h *HandingOver) CarryOn() {
	t := h.table
	t.mu.Lock()
	t.handing, t.begun = nil, make(chan struct{})
	for s := range t.live {
		s.conn.RestNext(false)
	}
	t.asking, t.stopAsking = context.WithCancelCause(context.Background())
	t.mu.Unlock()
	for _, s := range h.streams {
		s.Close()
	}
	close(h.decided)
}

// Leave ends the connections here, which another process has taken over, without a sign to the apps or the peers.
func (h *HandingOver) Leave() {
	h.moved = true
	close(h.decided)
}

// cannotRest returns an error if there are connections that cannot rest. mu is held.
func (t *Table) cannotRest() error {
	if t.bypasses > 0 {
		return fmt.Errorf("proxy: %d connections bypass the tunnel, and cannot be handed over", t.bypasses)
	}
	for s := range t.live {
		switch {
		case s.resting, t.handing != nil && t.handing.shut[s.Key.Peer]: // or about to leave
		case !s.conn.Rests() && !t.canRest(s.Key.Peer):
			return fmt.Errorf("proxy: peer %s has connections here, and is of a version that knows no hand-over: upgrade it first", s.Key.Peer)
		}
	}
	return nil
}
