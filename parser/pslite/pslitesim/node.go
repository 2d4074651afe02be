package pslitesim

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A Node is one process's end of a job. Its methods may be called concurrently.
type Node struct {
	Config
	role Role
	app  App

	ctx     context.Context // done when the node has failed or ended, for the reason in its cause
	fail    context.CancelCauseFunc
	running sync.WaitGroup // goroutines

	registered chan struct{} // closed when self.ID is set and all are being dialled
	terminated chan struct{} // closed when this node has told itself to stop
	terminate  func()        // closes it

	mu       sync.Mutex
	self     NodeInfo
	clock    int32 // of control messages
	senders  map[int32]*sender
	inbound  map[int32]*inbound
	admitted chan struct{} // closed, and replaced, when inbound has one more
	waiting  chan struct{} // receives when the barrier under way is answered; nil: none is
	leaving  bool          // connections may end
	members  []NodeInfo    // at the scheduler: the registered nodes, then the table
	barriers [groupAll + 1]int
}

// Start joins a job and returns when all its nodes have. It takes over c.Listener. When ctx is done, also later, the node
// fails: its connections are closed, and all calls that wait return the cause. app may be nil if it has nothing to receive.
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
		Config: c.withDefaults(), role: role, app: app, self: self,
		registered: make(chan struct{}), terminated: make(chan struct{}),
		senders: make(map[int32]*sender), inbound: make(map[int32]*inbound), admitted: make(chan struct{}),
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

// ID returns the node's id, which tells its role and its rank.
func (n *Node) ID() int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.self.ID
}

// Done is closed when the node has failed or ended.
func (n *Node) Done() <-chan struct{} { return n.ctx.Done() }

// Err returns why the node has failed or ended; nil if it has not.
func (n *Node) Err() error { return context.Cause(n.ctx) }

// Finish ends the node's part in the job: when all have come so far, it closes. After an error it is closed as well.
func (n *Node) Finish() error {
	defer n.Close()
	if err := n.Barrier(groupAll); err != nil {
		return err
	}
	n.mu.Lock()
	n.leaving = true
	self := n.self.ID
	n.mu.Unlock()
	n.Send(self, Meta{Head: Unset, AppID: Unset, Timestamp: Unset, Control: &Control{Command: Terminate}})
	select {
	case <-n.terminated:
	case <-n.ctx.Done():
		return fmt.Errorf("pslitesim: %v stops: %w", n.role, context.Cause(n.ctx))
	}
	n.mu.Lock()
	senders := make([]*sender, 0, len(n.senders))
	for _, s := range n.senders {
		senders = append(senders, s)
	}
	n.mu.Unlock()
	for _, s := range senders {
		s.close()
	}
	for _, s := range senders {
		<-s.done
	}
	return nil
}

// Close leaves the job at once. It may be called more than once, and after Finish.
func (n *Node) Close() {
	n.mu.Lock()
	n.leaving = true
	n.mu.Unlock()
	n.Listener.Close() // before the connections, so that a node that loses its connection is refused
	n.fail(ErrClosed)
	n.running.Wait()
}

// Send sends a message to a node with which this one is connected; if it is not, this one fails. It does not wait for that,
// and data must not change any more.
func (n *Node) Send(to int32, m Meta, data ...[]byte) {
	n.mu.Lock()
	s := n.senders[to]
	n.mu.Unlock()
	if s == nil {
		n.fail(fmt.Errorf("pslitesim: message to %s, with which this %v is not connected", name(to), n.role))
		return
	}
	s.send(append([][]byte{m.Append(nil)}, data...))
}

// Barrier waits until all nodes of a group, which must include this one, have called it. One may be under way at a time.
func (n *Node) Barrier(group int32) error {
	if len(n.group(group)) <= 1 {
		return nil // postoffice.cc, Barrier
	}
	answered := make(chan struct{}, 1)
	n.mu.Lock()
	if n.waiting != nil {
		n.mu.Unlock()
		return errors.New("pslitesim: two barriers at a time")
	}
	n.waiting = answered
	n.mu.Unlock()
	n.Send(SchedulerID, Meta{
		Head: Unset, Request: true, Timestamp: n.tick(),
		Control: &Control{Command: Barrier, BarrierGroup: group},
	})
	select {
	case <-answered:
		return nil
	case <-n.ctx.Done():
		return fmt.Errorf("pslitesim: barrier of group %d: %w", group, context.Cause(n.ctx))
	}
}

// tick returns the next timestamp of control messages.
func (n *Node) tick() int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.clock
	n.clock++
	return t
}

// awaits reports whether an answer from a node is due.
func (n *Node) awaits(id int32) bool {
	n.mu.Lock()
	scheduler := id == SchedulerID && n.role != Scheduler && (n.waiting != nil || n.self.ID == Unset)
	n.mu.Unlock()
	return scheduler || n.app != nil && n.app.Awaits(id)
}

// isLeaving reports whether connections may end now.
func (n *Node) isLeaving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaving || n.ctx.Err() != nil
}

// name is how errors call a node.
func name(id int32) string {
	switch {
	case id == SchedulerID:
		return "the scheduler"
	case id == 0:
		return "a node that registers"
	case id%2 == 0:
		return fmt.Sprintf("server %d", Rank(id))
	}
	return fmt.Sprintf("worker %d", Rank(id))
}
