package pslite

import "net/netip"

// A route names the sender and the receiver of a message.
type route struct {
	from     int            // id of the sender; 0: not known
	listener netip.AddrPort // where the side that accepted the connection listens
	back     bool           // the sender is that side
}

// identify returns the job of a message and the identity of its tensor, without the parts that come from its keys and
// values. It reports false if no node sends such a message.
func (x *connection) identify(r route, m *meta) (j *job, id identity, ok bool) {
	j = x.facts.jobOf(x, r.listener)
	id = identity{direction: m.kind(), worker: uint64(r.from), app: m.app, customer: m.customer}
	switch id.direction {
	case push, pull:
		return j, id, worker(r.from)
	case answer:
		id.worker = x.receiver(j, r)
		return j, id, server(r.from)
	}
	return j, id, false
}

// receiver returns the id of the worker that gets an answer, or a number in its place.
func (x *connection) receiver(j *job, r route) uint64 {
	id := j.table.node(r.listener)
	if r.back {
		id = x.dealer
	}
	if id == 0 {
		return place(r.listener.Addr(), x.conn.Number)
	}
	return uint64(id)
}
