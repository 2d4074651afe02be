package pslitesim

import (
	"context"
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// A Node is one process's end of a job. Its methods may be called concurrently.
type Node struct {
	life
	app App

	registered chan struct{} // closed when self.ID is set and all are being dialled
	terminated chan struct{} // closed when this node has told itself to stop
	terminate  func()        // closes it

	// The rest is guarded by life.mu.
	clock    int32 // of control messages
	senders  map[int32]*sender
	inbound  map[int32]*inbound
	admitted chan struct{} // closed, and replaced, when inbound has one more
	members  []NodeInfo    // at the scheduler: the registered nodes, then the table
	barriers [groupAll + 1]int
}

// An App is a node's work besides the control of its job.
type App interface {
	// Receive takes a message that is not a control message. The messages of one node come in order, messages of
	// several concurrently, also before Start has returned. It does not wait for other messages. An error fails the
	// node.
	Receive(n *Node, m *Message) error

	// Awaits reports whether an answer from a node is due.
	Awaits(id int32) bool
}

// An inbound is a connection on which a node sends to this one: one of libzmq's ROUTER.
type inbound struct {
	conn *zmtp.Conn
	gone chan struct{} // closed when it is read to its end
}

// ID returns the node's id, which tells its role and its rank.
func (n *Node) ID() int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.self.ID
}

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

// connect begins to connect to a node, in place of an earlier connection if there is one, which ends when its messages
// are sent.
func (n *Node) connect(to NodeInfo) {
	s := &sender{
		node: &n.life, to: to.ID, addr: to.addr(),
		wake: make(chan struct{}, 1), done: make(chan struct{}), up: make(chan struct{}),
	}
	s.dialling, s.stop = context.WithCancel(n.ctx)
	n.mu.Lock()
	if n.self.ID != Unset {
		s.identity = identity(n.self.ID)
	}
	old := n.senders[to.ID]
	n.senders[to.ID] = s
	n.mu.Unlock()
	if old != nil {
		old.close()
	}
	n.running.Go(s.run)
}

// Send sends a message to a node with which this one is connected; if it is not, this one fails. It does not wait for
// that, and data must not change any more.
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

// Barrier waits until all nodes of a group, which must include this one, have called it. One may be under way at a
// time.
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
