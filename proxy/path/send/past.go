package send

import (
	"maps"
	"sync"

	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// A past is the residuals and last values of the connection's tensors that may lose something. They are forgotten with
// the connection where its protocol never connects again.
type past struct {
	*direction
	owner string                     // names the job and the peer in residuals; "": not made yet
	job   *residual.Job              // nil: nothing could lose something so far
	dense map[uint64]*residual.Dense // by key
	rows  map[uint64]*residual.Rows  // of sparse tensors, by their index's key

	pruned int64 // bytes that the Store had forgotten at the last prune
}

// ofDense returns the past of a tensor, or nil if there is no room for it.
func (p *past) ofDense(t tensor.Tensor) *residual.Dense {
	d := p.conn.Env.Residuals.Dense(p.owned(), t, p.lasting())
	if d != nil {
		if p.dense == nil {
			p.dense = map[uint64]*residual.Dense{}
		}
		if p.job == nil {
			p.job = p.conn.Env.Residuals.Join(p.conn.Job)
		}
		p.dense[t.Key] = d
	}
	return d
}

// pruneAfter is the part of the Store's limit, one in so many, that forgotten memories may take before a connection
// lets go of them.
const pruneAfter = 8

// prune lets go of the memories that the Store has forgotten, once they may take enough room, and reports whether it
// did.
func (p *past) prune() bool {
	store := p.conn.Env.Residuals
	n := store.Forgotten()
	if n-p.pruned <= store.Limit()/pruneAfter {
		return false
	}
	p.pruned = n
	maps.DeleteFunc(p.dense, func(_ uint64, d *residual.Dense) bool { return !store.Remembers(d) })
	return true
}

// forgotten reports whether lock is a memory that the Store has forgotten.
func (p *past) forgotten(lock sync.Locker) bool {
	d, ok := lock.(*residual.Dense)
	return ok && !p.conn.Env.Residuals.Remembers(d)
}

// ofRows returns the past of a sparse tensor, whose rows have width elements, or nil if there is no room for it.
func (p *past) ofRows(t tensor.Tensor, width int) *residual.Rows {
	r := p.conn.Env.Residuals.Rows(p.owned(), t, width, p.lasting())
	if r != nil {
		if p.rows == nil {
			p.rows = map[uint64]*residual.Rows{}
		}
		p.rows[t.Keys] = r
	}
	return r
}

// owned returns the name under which residuals are kept. The peer is part of it: what one peer says of its nodes may
// give its tensors the keys that another peer's have.
func (p *past) owned() string {
	if p.owner == "" {
		p.owner = residual.Owner(p.conn.Job, p.conn.Peer)
	}
	return p.owner
}

// lasting reports whether the protocol's tensors outlive the connection.
func (p *past) lasting() bool { return p.conn.Env.Lasting(p.flow.Protocol) }

// forget drops everything, unless it outlives the connection or may be found again by its origin. all: in any case.
func (p *past) forget(all bool) {
	if !all && p.lasting() {
		return
	}
	drop := p.conn.Env.Residuals.End
	if all {
		drop = p.conn.Env.Residuals.Drop
	}
	for _, d := range p.dense {
		drop(d)
	}
	for _, r := range p.rows {
		p.conn.Env.Residuals.DropRows(r)
	}
	clear(p.dense)
	clear(p.rows)
}

// leave ends the connection's part in its job.
func (p *past) leave() {
	if p.job != nil {
		p.conn.Env.Residuals.Leave(p.job)
		p.job = nil
	}
}
