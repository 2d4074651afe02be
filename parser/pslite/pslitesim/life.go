package pslitesim

import (
	"context"
	"sync"
)

// A life is the part of a node that its connections know: its settings, whether it goes on, and which answers are due.
type life struct {
	Config
	role Role
	due  func(id int32) bool // App.Awaits; nil: there is no App

	ctx     context.Context // done when the node has failed or ended, for the reason in its cause
	fail    context.CancelCauseFunc
	running sync.WaitGroup // goroutines

	mu      sync.Mutex
	self    NodeInfo
	waiting chan struct{} // receives when the barrier under way is answered; nil: none is
	leaving bool          // connections may end
}

// Done is closed when the node has failed or ended.
func (n *life) Done() <-chan struct{} { return n.ctx.Done() }

// Err returns why the node has failed or ended; nil if it has not.
func (n *life) Err() error { return context.Cause(n.ctx) }

// awaits reports whether an answer from a node is due.
func (n *life) awaits(id int32) bool {
	n.mu.Lock()
	scheduler := id == SchedulerID && n.role != Scheduler && (n.waiting != nil || n.self.ID == Unset)
	n.mu.Unlock()
	return scheduler || n.due != nil && n.due(id)
}

// isLeaving reports whether connections may end now.
func (n *life) isLeaving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaving || n.ctx.Err() != nil
}
