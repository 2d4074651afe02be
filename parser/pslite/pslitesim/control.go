package pslitesim

import (
	"fmt"
	"time"
)

// control handles a control message (van.cc, Receiving).
func (n *Node) control(m *Message) error {
	c := m.Control
	switch {
	case c.Command == AddNode && n.role == Scheduler:
		return n.register(m)
	case c.Command == AddNode:
		return n.meet(c.Nodes)
	case c.Command == Barrier && m.Request && n.role == Scheduler:
		return n.count(m)
	case c.Command == Barrier && !m.Request:
		return n.endBarrier()
	case c.Command == Heartbeat && n.role == Scheduler:
		n.echo(m.From)
		return nil
	case c.Command == Heartbeat:
		return nil
	case c.Command == Terminate && m.From == n.ID():
		n.terminate()
		return nil
	}
	return fmt.Errorf("control message of command %d, request %v, to a %v", c.Command, m.Request, n.role)
}

// count counts a barrier's requests, and answers all when there is one of each node (van.cc, ProcessBarrierCommand).
func (n *Node) count(m *Message) error {
	group := m.Control.BarrierGroup
	if group <= 0 || group > groupAll {
		return fmt.Errorf("barrier of group %d", group)
	}
	members := n.group(group)
	n.mu.Lock()
	n.barriers[group]++
	complete := n.barriers[group] == len(members)
	if complete {
		n.barriers[group] = 0
	}
	n.mu.Unlock()
	if !complete {
		return nil
	}
	for _, id := range members {
		n.Send(id, Meta{
			Head: Unset, AppID: m.AppID, CustomerID: m.CustomerID, Timestamp: n.tick(),
			Control: &Control{Command: Barrier},
		})
	}
	return nil
}

// endBarrier ends the wait for a barrier.
func (n *Node) endBarrier() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting == nil {
		return fmt.Errorf("answer to a barrier that was not asked for")
	}
	n.waiting <- struct{}{}
	n.waiting = nil
	return nil
}

// beat tells the scheduler now and then that this node lives (van.cc, Heartbeat).
func (n *Node) beat() {
	t := time.NewTicker(n.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if n.isLeaving() {
				return
			}
			n.Send(SchedulerID, n.alive())
		case <-n.Done():
			return
		}
	}
}

// echo answers a heart beat (van.cc, ProcessHearbeat).
func (n *Node) echo(to int32) {
	if !n.isLeaving() {
		n.Send(to, n.alive())
	}
}

// alive is a heart beat, or the answer to one.
func (n *Node) alive() Meta {
	timestamp := n.tick()
	n.mu.Lock()
	self := n.self
	n.mu.Unlock()
	return Meta{
		Head: Unset, AppID: Unset, CustomerID: Unset, Timestamp: timestamp,
		Control: &Control{Command: Heartbeat, Nodes: []NodeInfo{self}},
	}
}
