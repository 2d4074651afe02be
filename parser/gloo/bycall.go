package gloo

import (
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/tensor"
)

// This file has the part of counted that uses the proof: the roles that the calls of a process give to its all-reduces.

// byCall gives message k of an all-reduce the role that its process's calls prove.
func (c *counted) byCall(v *tensor.Tensor, e *observedReduce, k int) {
	x := &e.call
	if x.dtype != tensor.NoDType && !x.strays {
		v.DType = x.dtype
	}
	v.Role, v.Why = tensor.Unknown, callReasons[x.verdict]
	switch x.verdict {
	case callNoSum:
		v.Role = tensor.Exact
	case callLearning:
		v.Key = 0 // the first value that may lose something is not compared with the one before it
	case callBucket:
		r := reading{size: x.ring.size, phased: x.ring.full(), first: k < x.ring.phase(), tiny: x.ring.segment < crumb, called: x.dtype}
		v.Role, v.DType, v.Why = r.role(true)
		v.Key = mix.Words(c.seed, keyOfCall, uint64(x.bucket.number), uint64(x.ring.size), uint64(k))
		v.Proof = tensor.ByCall
		if v.Role == tensor.Gradient { // a sum's residual belongs to its receivers, and a later group may have other receivers
			v.Origin = c.origin(x, k)
		}
		x.loss = x.loss || v.Role == tensor.Gradient || v.Role == tensor.Aggregate
	}
}

// origin identifies message k of an all-reduce among the messages of all connections between the same two addresses. It
// returns 0 if the origin is not known: the calls do not name the bucket, or the wire contradicts the place in the
// group that was read from the process's memory.
func (d *flow) origin(x *called, k int) uint64 {
	if x.origin == 0 || x.member.Ranks != x.ring.ranks {
		return 0
	}
	return mix.Words(d.ends, keyOfOrigin, x.origin, uint64(x.ring.size), uint64(x.ring.ranks), uint64(x.member.Rank), uint64(k))
}

// byCalls reports whether only calls can prove a role.
func (c *counted) byCalls() bool { return c.proof.calls != nil && !c.conn.sums() }

// sees reports whether the calls settle the role of the all-reduce of a tag.
func (c *counted) sees(tag uint32) bool {
	e := c.find(tag)
	if e == nil || e.call.fits == nil || e.call.strays {
		return false
	}
	return c.byCalls() || c.proof.vetoes(&e.call)
}
