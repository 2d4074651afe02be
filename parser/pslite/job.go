package pslite

import (
	"maps"
	"net/netip"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// A job holds the facts that its connections have shown. The zero job is the job of a single connection.
type job struct {
	seed       uint64           // of its tensors' keys
	peer       uint64           // hash of the peer in whose scope the job is
	run        uint64           // changes when the job begins anew; 0: of a single connection
	begun      bool             // its beginning was seen, so a command that was not seen was not given
	optimizers map[int]struct{} // workers that gave the servers an optimizer
	confirmed  bool             // a server of this site has answered that it was given one
	outlived   bool             // a worker's process has been replaced since, so that this may be of an earlier run
	coded      map[uint64]bool  // BytePS: keys with a compressor
	allCoded   bool             // there are too many such keys to remember
	table      table
}

// newJob returns the job of several connections.
func newJob(seed, run, peer uint64) *job { return &job{seed: seed, peer: peer, run: run} }

// joined reports whether j has all connections of the job, and not just one.
func (j *job) joined() bool { return j.run != 0 }

// begin makes a new run of j.
func (j *job) begin(run uint64) { *j = job{seed: j.seed, peer: j.peer, run: run} }

// maxCoded bounds the keys of a job that have a compressor; with more all of them are taken to have one.
const maxCoded = 1 << 14

// code notes that a key has a compressor.
func (j *job) code(key uint64) {
	if len(j.coded) >= maxCoded {
		j.allCoded = true
		return
	}
	if j.coded == nil {
		j.coded = map[uint64]bool{}
	}
	j.coded[key] = true
}

// optimize notes that a worker gave the servers an optimizer.
func (j *job) optimize(worker int) {
	if j.optimizers == nil {
		j.optimizers = map[int]struct{}{}
	}
	if len(j.optimizers) < maxNodes {
		j.optimizers[worker] = struct{}{}
	}
}

// A table is the scheduler's list of the nodes.
type table struct {
	sum   uint64                    // hash of its content
	nodes map[netip.AddrPort]int    // ids by address
	ports map[uint16]int            // and by port, where nodes are known by names; -1: of several
	at    map[int]string            // addresses by id
	times map[int]uint64            // how often a node was replaced
	heard map[netip.AddrPort]uint64 // the connection on which a node got the table, by the node's address
}

// node returns the id of the node that listens there, 0 if no table has it.
func (t *table) node(a netip.AddrPort) int {
	if id := t.nodes[a]; id != 0 {
		return id
	}
	return max(0, t.ports[a.Port()])
}

// set notes the address of a node.
func (t *table) set(n node) {
	if n.port < 1 || n.port > 1<<16-1 || len(t.nodes) >= 2*maxNodes {
		return
	}
	if t.nodes == nil {
		t.nodes, t.ports, t.at, t.times = map[netip.AddrPort]int{}, map[uint16]int{}, map[int]string{}, map[int]uint64{}
	}
	if old, ok := t.at[n.id]; ok && old != n.endpoint() && n.recovery {
		t.times[n.id]++
	}
	t.at[n.id] = n.endpoint()
	if a, ok := n.address(); ok {
		t.nodes[a] = n.id
	}
	if id, ok := t.ports[uint16(n.port)]; ok && id != n.id {
		t.ports[uint16(n.port)] = -1
	} else {
		t.ports[uint16(n.port)] = n.id
	}
}

// endpoint returns a node's address as the table has it.
func (n node) endpoint() string { return n.host + ":" + strconv.Itoa(n.port) }

// address returns a node's address if it is one, and no name.
func (n node) address() (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(strings.Trim(n.host, "[]"))
	return netip.AddrPortFrom(a.Unmap(), uint16(n.port)), err == nil && n.port > 0 && n.port < 1<<16
}

// sumOf returns a hash of a table's content.
func sumOf(nodes []node) uint64 {
	h := xxhash.New()
	for _, n := range nodes {
		h.WriteString(n.endpoint() + " " + strconv.Itoa(n.id) + "\n")
	}
	return h.Sum64()
}

// confirm notes that a server of this site has an optimizer.
func (j *job) confirm() {
	if len(j.optimizers) == 0 { // else the worker that gave it is known here
		j.confirmed, j.outlived = true, false
	}
}

// replace notes that another process has taken a worker's place.
func (j *job) replace(worker int) {
	delete(j.optimizers, worker)
	j.outlived = j.outlived || j.confirmed
}

// updates reports whether the servers have an optimizer, with which they update weights.
func (j *job) updates() bool { return len(j.optimizers) > 0 || j.confirmed && !j.outlived }

// clone returns a copy that shares nothing with t.
func (t *table) clone() table {
	return table{t.sum, maps.Clone(t.nodes), maps.Clone(t.ports), maps.Clone(t.at), maps.Clone(t.times), maps.Clone(t.heard)}
}

// copy returns a copy for the words of another peer.
func (j *job) copy(run, peer uint64) *job {
	c := *j
	c.peer, c.run = peer, run
	c.optimizers, c.coded, c.table = maps.Clone(j.optimizers), maps.Clone(j.coded), j.table.clone()
	return &c
}
