package handover

import (
	"context"
	"errors"
	"net"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// ErrMoving is why openings end that another process is to begin anew.
var ErrMoving = errors.New("proxy: another process is about to take over")

// An Opening is a connection that is being opened: it has neither failed nor got a seat.
type Opening struct {
	table *Table
	ended bool // guarded by Table.mu
}

// Begin notes an opening that is under way, until its End.
func (t *Table) Begin() *Opening {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underWay++
	return &Opening{table: t}
}

// End notes the end of an opening. It may be called more than once.
func (o *Opening) End() {
	o.table.mu.Lock()
	defer o.table.mu.Unlock()
	o.end()
}

// end is End; mu is held.
func (o *Opening) end() {
	if !o.ended {
		o.ended = true
		o.table.underWay--
		o.table.changed()
	}
}

// Asking returns the context of openings that begin now and that another process can begin anew: it ends, by ErrMoving,
// when that process is about to take over.
func (t *Table) Asking() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asking
}

// Moved hands an app's connection that is not open yet to another process, if that takes over, and returns once that is
// decided; false: this process serves it on. A connection that comes after HandingOver.Connections is missed: it is in
// neither process, and must be reset.
func (o *Opening) Moved(c *net.TCPConn, of frame.Opening) (moved, missed bool) {
	t := o.table
	t.mu.Lock()
	h := t.handing
	if h == nil {
		t.mu.Unlock()
		return false, false
	}
	h.waiting[c] = of
	missed = h.listed
	o.end()
	t.mu.Unlock()
	<-h.decided
	if h.moved {
		return true, missed
	}
	t.mu.Lock()
	t.underWay++
	o.ended = false
	t.mu.Unlock()
	return false, false
}
