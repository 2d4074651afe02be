package gloo

import (
	"slices"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// How a job's first weights become known, and the places that messages of a sum would have in them: averages of weights
// are sums of the model's size whose elements come in the same order as the parameters that DistributedDataParallel
// broadcasts before the first step, and they resemble them.

// A weighing follows the broadcasts of a model's parameters in one direction, which have consecutive tags. The zero
// weighing follows none.
type weighing struct {
	model   *model
	tag     uint32 // of the next broadcast
	weights *tensor.Weights
}

// begin takes note of a broadcast of that side, and returns the Weights to which its payload is to be given; nil: it
// has no parameters.
func (x *weighing) begin(m *metadata, from parser.Side, tag uint32) *tensor.Weights {
	own := m.said[from].all()
	if i := slices.IndexFunc(m.models, func(o *model) bool { return o.tag+2 == tag && slices.Contains(own, o) }); i >= 0 && m.models[i].total >= minElements {
		*x = weighing{m.models[i], tag, tensor.NewWeights(int(m.models[i].total))}
	}
	if x.model == nil || x.tag != tag {
		return nil
	}
	x.tag++
	return x.weights
}

// end takes note of the end of a broadcast of parameters.
func (x *weighing) end() {
	if x.model != nil && x.weights.Complete() {
		x.model.weigh(x.weights)
		*x = weighing{}
	}
}

// weights returns the first weights of models of so many elements: the newest of each sayer, once. A rank has them from
// one site alone, and its sums with another site are to be compared with them too; nobody's words hide the ones of
// another.
func (m *metadata) weights(elements int) []*tensor.Weights {
	var found []*tensor.Weights
	for _, f := range m.job.everyone() {
		for _, x := range f.all() {
			if w := x.weighed(); w != nil && x.total == uint64(elements) {
				if !slices.ContainsFunc(found, w.Equal) {
					found = append(found, w)
				}
				break
			}
		}
	}
	return found
}

// placed returns the places that message k of an all-reduce has in the model's weights if it sums them; nil: they are
// not known, or the content check has no use for them.
func (c *counted) placed(r *ring, k int, d tensor.DType) *tensor.Placement {
	if !c.conn.sums() || !d.Float() || !r.full() {
		return nil
	}
	w := c.conn.meta.weights(r.size / d.Size())
	if len(w) == 0 {
		return nil
	}
	p := &tensor.Placement{Weights: w}
	for rank := range r.ranks {
		if at := r.offset(rank, k) / d.Size(); r.senders>>rank&1 == 1 && !slices.Contains(p.Offsets, at) {
			p.Offsets = append(p.Offsets, at)
		}
	}
	return p
}
