package pslite

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// observe takes note of a message without data, of that side.
func (x *connection) observe(side parser.Side, r route, m *meta) {
	f := x.facts
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case m.command == addNode && r.from == scheduler && !m.request:
		f.believe(x, side, func(in scope, j *job) { f.announce(in, x.number, j, r.listener, m.nodes) })
	case m.kind() == command && m.request && worker(r.from):
		j := f.jobOf(x, r.listener)
		f.life(x, side, j, r, m)
		if m.head == optimizer {
			f.believe(x, side, func(in scope, j *job) { f.jobIn(in, r.listener, j).optimize(r.from) })
		}
	case m.kind() == command && !m.request && server(r.from) && m.head == optimizer && x.own(side) && f.jobOf(x, r.listener).updates():
		f.believe(x, side, func(in scope, j *job) { f.jobIn(in, r.listener, j).confirm() })
	}
}

// life returns the number of the life to which a request belongs.
func (f *facts) life(x *connection, side parser.Side, j *job, r route, m *meta) uint64 {
	number, replaced := f.live(lifeOf{j.peer, j.run, r.listener, r.from, j.table.times[r.from], m.app, m.customer}, m.timestamp, x.number)
	if replaced {
		f.believe(x, side, func(in scope, j *job) { f.jobIn(in, r.listener, j).replace(r.from) })
	}
	if m.timestamp == 0 && !j.begun {
		f.believe(x, side, func(in scope, j *job) { f.jobIn(in, r.listener, j).begun = true })
	}
	return number
}

// value takes note of a message with vals of size bytes, and returns the tensor that they are.
func (x *connection) value(side parser.Side, r route, m *meta, k *keys, size int) tensor.Tensor {
	l := layoutOf(m, k, size)
	t := tensor.Tensor{DType: l.dtype, Size: size, Hold: size, Why: tensor.RoleUnproved}
	f := x.facts
	f.mu.Lock()
	defer f.mu.Unlock()
	j, id, ok := x.identify(r, m)
	id.shape, id.key, id.set = l.shape, l.key, l.set
	switch {
	case !ok:
	case id.direction == pull:
		f.life(x, side, j, r, m)
	case id.direction == push:
		isList := x.isList(m, k.bytes) && size%(k.bytes/keyWidth(m.types[0])*l.dtype.Size()) == 0
		if number := f.life(x, side, j, r, m); l.known || isList {
			t.Role, t.Why = f.push(j, number, r, m, l), tensor.OK
			t.Proof = j.pushProof(isList)
		}
		if t.Key = id.under(j.seed); isList {
			t.Keys = id.ofList(x.receiver(j, r)).under(j.seed)
		}
	default:
		if l.known {
			t.Role, t.Why = j.answer(m, l)
			t.Proof = tensor.ByWire
		}
		t.Key = id.under(j.seed)
		if l.set == 0 || k.again { // values of rows that change each time are not worth holding
			t.Base = id.shared(j.seed)
		}
	}
	if l.shape == rows && t.Key != 0 {
		t.Keys = id.ofIndex(m, k).under(j.seed)
	}
	if t.Role == tensor.Exact && !j.plain(m, l) && l.dtype.Float() { // a compressor's codes
		t.DType = tensor.NoDType
	}
	if t.DType == tensor.NoDType && t.Why == tensor.OK {
		t.Why = tensor.DTypeUnknown
	}
	if size == 0 {
		return tensor.Tensor{}
	}
	return t
}

// push returns the role of a push of conventional layout, and takes note of it.
func (f *facts) push(j *job, life uint64, r route, m *meta, l layout) tensor.Role {
	k := pushKey{life, l.key}
	p, ok := f.pushed.Use(j.peer, k)
	if !ok {
		p = new(pushes)
		f.pushed.Keep(j.peer, k, p, f.limits.pushed)
	}
	n, again := p.note(m.timestamp)
	exact := uint32(0) // pushes that begin a key
	switch {
	case m.packed:
		exact = 2
		if l.shape == codes {
			j.code(l.key)
		}
	case r.from == rank0:
		exact = 1
	}
	if again || n <= exact || !j.plain(m, l) {
		return tensor.Exact
	}
	return tensor.Gradient
}

// pushProof returns the proof of a push's role. Without an optimizer on the servers a job may push anything that it
// wants summed, such as weights that it averages; and a list of another application's values is a gradient on the
// user's word alone.
func (j *job) pushProof(isList bool) tensor.Proof {
	switch {
	case isList:
		return tensor.ByUser
	case j.updates():
		return tensor.ByUpdate
	}
	return tensor.ByWire
}

// answer returns the role of an answer of conventional layout.
func (j *job) answer(m *meta, l layout) (tensor.Role, tensor.Reason) {
	switch {
	case !j.plain(m, l):
		return tensor.Exact, tensor.OK
	case m.packed:
		return tensor.Aggregate, tensor.OK
	case j.updates():
		return tensor.State, tensor.OK
	case !j.begun, j.confirmed: // an optimizer may have been given before, or on a connection that is not known to be the job's
		return tensor.Unknown, tensor.RoleUnproved
	}
	return tensor.Aggregate, tensor.OK
}

// plain reports whether vals are floating-point numbers that the framework has not coded: codes have no element type.
func (j *job) plain(m *meta, l layout) bool {
	return l.dtype.Float() && !(m.packed && (j.allCoded || j.coded[l.key]))
}
