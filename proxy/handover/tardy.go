package handover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A hand-over that fails since a peer is silent, or an app does not read, loses nothing, which is best where the WAN is
// down for a while. But a peer could keep this process, perhaps with a hole that the next one has not, in its place for
// ever. So a hand-over may have a patience, after which it resets all that keeps it waiting and goes on.

// errTardy is the reason for which connections are reset when the patience is over.
var errTardy = errors.New("it does not answer in time, and upgrade.late is reset")

// resetUnheld resets the connections that are not at rest.
func (h *HandingOver) resetUnheld() {
	t := h.table
	t.mu.Lock()
	reset := t.doom(func(s *Seat) bool { return !s.held })
	t.mu.Unlock()
	n := reset()
	t.config.Log.Warn("connections are reset that do not come to rest in time, since upgrade.late is reset", "connections", n)
}

// expect notes that an answer of a peer is awaited, or has come.
func (h *HandingOver) expect(peer string, awaited bool) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.expected[peer] = awaited
}

// failed adds to err the peers on which the hand-over has waited when its time was over, and how to go on.
func (h *HandingOver) failed(ctx context.Context, err error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	t := h.table
	t.mu.Lock()
	maps.DeleteFunc(h.expected, func(_ string, awaited bool) bool { return !awaited })
	if len(h.expected) == 0 {
		for s := range t.live {
			if !s.held {
				h.expected[s.Key.Peer] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(h.expected))
	t.mu.Unlock()
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w (it waited for %s: try again, or set upgrade.late: reset in the new process's configuration, and the connections that keep it waiting are reset)", err, strings.Join(names, ", "))
}
