package pslite

import "net/netip"

// announce takes note, in a scope, of nodes that the scheduler has sent to the node at listener: the whole table, or
// one node that takes the place of another. j is the job of the scope's connections that no table names.
func (f *facts) announce(in scope, number uint64, j *job, listener netip.AddrPort, nodes []node) {
	if len(nodes) > maxNodes {
		return
	}
	var boss string
	recovery := false
	for _, n := range nodes {
		recovery = recovery || n.recovery
		if n.id == scheduler {
			boss = n.endpoint()
		}
	}
	if boss == "" {
		if j = f.jobIn(in, listener, j); recovery && j.joined() {
			f.replace(in, j, nodes)
		}
		return
	}
	j = f.jobAt(in, boss)
	sum := sumOf(nodes)
	if conn, listed := j.table.heard[listener]; !recovery && (j.table.sum != sum || listed && conn != number) {
		j.begin(f.number())
	}
	j.begun, j.table.sum = true, sum
	if j.table.heard == nil {
		j.table.heard = map[netip.AddrPort]uint64{}
	}
	if len(j.table.heard) < maxNodes {
		j.table.heard[listener] = number
	}
	f.places.Keep(peerHash(in.peer), placeKey{in, listener}, j, f.limits.places)
	f.replace(in, j, nodes)
}

// replace notes the addresses of nodes.
func (f *facts) replace(in scope, j *job, nodes []node) {
	for _, n := range nodes {
		if len(j.table.at) >= maxNodes && j.table.at[n.id] == "" {
			continue
		}
		j.table.set(n)
		if a, ok := n.address(); ok {
			f.places.Keep(peerHash(in.peer), placeKey{in, a}, j, f.limits.places)
		}
	}
}

// jobAt returns the job of a scheduler. The job of the first scheduler of a configured job has its other connections
// too.
func (f *facts) jobAt(in scope, boss string) *job {
	if n := f.named[in]; n != nil {
		if n.scheduler == "" {
			n.scheduler = boss
		}
		if n.scheduler == boss {
			return n.job
		}
	}
	k, peer := tableKey{in, boss}, peerHash(in.peer)
	j, ok := f.tables.Use(peer, k)
	if !ok {
		j = newJob(tableSeed(in.job, boss), f.number(), peer)
		f.tables.Keep(peer, k, j, f.limits.tables)
	}
	return j
}
