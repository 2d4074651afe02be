package pslitesim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// register adds a node to the job. When all are there, it gives out the ids, connects to them and tells them the table
// (van.cc, ProcessAddNodeCommandAtScheduler).
func (n *Node) register(m *Message) error {
	if m.From != 0 || len(m.Control.Nodes) != 1 {
		return fmt.Errorf("registration of %d nodes at a time", len(m.Control.Nodes))
	}
	node := m.Control.Nodes[0]
	n.mu.Lock()
	count := 1
	for _, other := range n.members {
		if other.Role == node.Role {
			count++
		}
	}
	full := node.Role == Worker && count > n.Workers || node.Role == Server && count > n.Servers
	if full || node.Role != Worker && node.Role != Server {
		n.mu.Unlock()
		return fmt.Errorf("%v %s registers at a job of %d workers and %d servers that has all of them", node.Role, node.addr(), n.Workers, n.Servers)
	}
	n.members = append(n.members, node)
	complete := len(n.members) == n.Workers+n.Servers
	if complete {
		number(n.members)
	}
	members, self := slices.Clone(n.members), n.self
	n.mu.Unlock()
	if !complete {
		return nil
	}
	for _, other := range members {
		n.connect(other)
	}
	table := append(members, self)
	for _, id := range n.group(GroupWorkers + GroupServers) {
		n.Send(id, Meta{
			Head: Unset, AppID: Unset, CustomerID: Unset, Timestamp: n.tick(),
			Control: &Control{Command: AddNode, Nodes: table},
		})
	}
	close(n.registered)
	return nil
}

// number sorts the nodes, greater host names first and then lower ports, and gives each its id.
func number(nodes []NodeInfo) {
	slices.SortStableFunc(nodes, func(a, b NodeInfo) int {
		return cmp.Or(strings.Compare(b.Hostname, a.Hostname), cmp.Compare(a.Port, b.Port))
	})
	var workers, servers int
	for i := range nodes {
		if nodes[i].Role == Worker {
			nodes[i].ID = WorkerID(workers)
			workers++
		} else {
			nodes[i].ID = ServerID(servers)
			servers++
		}
	}
}

// meet takes its own id from the table, and connects to all nodes of other roles and to itself (van.cc, UpdateLocalID
// and ProcessAddNodeCommand; zmq_van.h, Connect).
func (n *Node) meet(table []NodeInfo) error {
	n.mu.Lock()
	again := n.self.ID != Unset
	for _, node := range table {
		if node.Hostname == n.self.Hostname && node.Port == n.self.Port && node.Role == n.role {
			n.self = node
		}
	}
	self := n.self
	n.mu.Unlock()
	switch {
	case again:
		return errors.New("second table of nodes: a node that replaces another is not supported")
	case self.ID == Unset:
		return fmt.Errorf("table of %d nodes that lacks this one, %s", len(table), self.addr())
	}
	have := make(map[int32]bool)
	for _, node := range table {
		have[node.ID] = true
		if node.Role != n.role || node.ID == self.ID {
			n.connect(node)
		}
	}
	for _, id := range n.group(groupAll) {
		if !have[id] {
			return fmt.Errorf("table of %d nodes that lacks %s", len(table), name(id))
		}
	}
	close(n.registered)
	return nil
}
