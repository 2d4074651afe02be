package pslite

import "net/netip"

// announce takes note of nodes that the scheduler has sent to the node at listener: the whole table, or one node that
// takes the place of another.
func (f *facts) announce(x *connection, listener netip.AddrPort, nodes []node) {
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
		if j := f.jobOf(x, listener); recovery && j.joined() {
			f.replace(x, j, nodes)
		}
		return
	}
	j := f.jobAt(x.scope(), boss)
	sum := sumOf(nodes)
	if conn, listed := j.table.heard[listener]; !recovery && (j.table.sum != sum || listed && conn != x.number) {
		j.begin(f.number())
	}
	j.begun, j.table.sum = true, sum
	if j.table.heard == nil {
		j.table.heard = map[netip.AddrPort]uint64{}
	}
	if len(j.table.heard) < maxNodes {
		j.table.heard[listener] = x.number
	}
	f.places.Keep(placeKey{x.scope(), listener}, j, f.limits.places)
	f.replace(x, j, nodes)
}

// replace notes the addresses of nodes.
func (f *facts) replace(x *connection, j *job, nodes []node) {
	for _, n := range nodes {
		if len(j.table.at) >= maxNodes && j.table.at[n.id] == "" {
			continue
		}
		j.table.set(n)
		if a, ok := n.address(); ok {
			f.places.Keep(placeKey{x.scope(), a}, j, f.limits.places)
		}
	}
}

// jobAt returns the job of a scheduler. The job of the first scheduler of a configured job has its other connections too.
func (f *facts) jobAt(in scope, boss string) *job {
	if n := f.named[in.job]; n != nil {
		if n.scheduler == "" {
			n.scheduler = boss
		}
		if n.scheduler == boss {
			return n.job
		}
	}
	k := tableKey{in, boss}
	j, ok := f.tables.Use(k)
	if !ok {
		j = newJob(tableSeed(in.job, boss), f.number())
		f.tables.Keep(k, j, f.limits.tables)
	}
	return j
}
