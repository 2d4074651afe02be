package pslitesim

import (
	"context"
	"fmt"
	"sync"
)

// Start joins a job and returns when all its nodes have. It takes over c.Listener. When ctx is done, also later, the
// node fails: its connections are closed, and all calls that wait return the cause. app may be nil if it has nothing to
// receive.
func Start(ctx context.Context, role Role, c Config, app App) (*Node, error) {
	scheduler, err := info(Scheduler, c.Scheduler)
	self := scheduler
	if err == nil && role != Scheduler {
		self, err = info(role, c.Addr)
	}
	if err != nil {
		c.Listener.Close()
		return nil, err
	}
	n := &Node{
		life: life{Config: c.withDefaults(), role: role, self: self}, app: app,
		registered: make(chan struct{}), terminated: make(chan struct{}),
		senders: make(map[int32]*sender), inbound: make(map[int32]*inbound), admitted: make(chan struct{}),
	}
	if app != nil {
		n.due = app.Awaits
	}
	n.terminate = sync.OnceFunc(func() { close(n.terminated) })
	n.ctx, n.fail = context.WithCancelCause(ctx)
	context.AfterFunc(n.ctx, func() { n.Listener.Close() })
	n.running.Go(n.accept)
	n.connect(scheduler)
	if role != Scheduler {
		n.Send(SchedulerID, Meta{
			Head: Unset, AppID: Unset, CustomerID: Unset, Timestamp: n.tick(),
			Control: &Control{Command: AddNode, Nodes: []NodeInfo{self}},
		})
	}
	if err := n.begin(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// begin waits until the job stands.
func (n *Node) begin() error {
	select {
	case <-n.registered:
	case <-n.ctx.Done():
		return fmt.Errorf("pslitesim: %v waits for the others: %w", n.role, context.Cause(n.ctx))
	}
	if n.Heartbeat > 0 && n.role != Scheduler {
		n.running.Go(n.beat)
	}
	return n.Barrier(groupAll)
}
