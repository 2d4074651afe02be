package gloo

import (
	"slices"
	"unsafe"

	"github.com/gradproxy/gradproxy/parser"
)

// mapEntry is about how many bytes an entry of a map takes beside key and value, with the room that the map keeps free.
const mapEntry = 24

// Held implements parser.Sized. The state that both directions share counts as the client's.
func (s *stream) Held() int {
	s.dir.conn.mu.Lock()
	defer s.dir.conn.mu.Unlock()
	n := int(unsafe.Sizeof(*s)) + cap(s.copied) + s.dir.held()
	if s.sample != nil {
		n += int(unsafe.Sizeof(*s.sample))
	}
	if s.dir.side == parser.Client {
		n += int(unsafe.Sizeof(connection{})) + s.dir.conn.meta.held(s.dir.conn.conn.Job == "")
	}
	return n
}

var _ parser.Sized = (*stream)(nil)

func (d *direction) held() int {
	return d.counted.held() + d.constant.held() + d.weighing.weights.Held()
}

func (c *counted) held() int {
	n := held(c.history) + c.learnt.held() + c.proof.held()
	for _, l := range c.models {
		n += int(unsafe.Sizeof(*l)) + held(l.buckets) + held(l.extras) + held(l.passed) + l.step.held()
	}
	return n
}

func (s *step) held() int {
	if s == nil {
		return 0
	}
	return int(unsafe.Sizeof(*s)) + held(s.reduces) + held(s.open)
}

func (p *proof) held() int {
	return len(p.candidates)*(16+mapEntry+int(unsafe.Sizeof(candidate{}))) + held(p.agreeing) + len(p.buckets)*(16+mapEntry+int(unsafe.Sizeof(calledBucket{}))) +
		held(p.found) + held(p.fits)
}

func (c *constant) held() int {
	return held(c.history) + held(c.links) + len(c.newest)*(12+mapEntry) + held(c.learnt) + held(c.cuts)
}

// held counts the models of a connection that has no job, and the ones that it still has though its job's facts have
// dropped them; these are bounded for all connections of a job together.
func (m *metadata) held(alone bool) int {
	n := held(m.gathers) + held(m.models) + held(m.pending[0].order) + held(m.pending[1].order)
	all := m.all()
	for _, x := range m.models {
		if !slices.Contains(all, x) {
			n += x.held()
		}
	}
	if alone {
		for _, x := range all {
			n += x.held()
		}
	}
	return n
}

func (m *model) held() int {
	return int(unsafe.Sizeof(*m)) + held(m.counts) + held(m.announced()) + m.weighed().Held()
}

// held returns the bytes of a slice's array.
func held[T any](s []T) int {
	var x T
	return cap(s) * int(unsafe.Sizeof(x))
}
