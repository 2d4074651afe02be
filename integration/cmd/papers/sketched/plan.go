package sketched

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

// A Plan is parameters that have been checked, which all workers and the server of one tensor must have alike. It is
// immutable and safe for concurrent use; workers and a server in one process may share it.
type Plan struct {
	sketchedsgd.Params
	coded *sketchedsgd.Plan // nil: the tensor goes uncompressed
}

// NewPlan checks p. Tensors of at most small values go uncompressed in one round: biases, in the paper (section 5.1);
// 0: none.
func NewPlan(p sketchedsgd.Params, small int) (*Plan, error) {
	switch {
	case small < 0:
		return nil, fmt.Errorf("sketched: small is %d; write a number of values, 0 for none", small)
	case p.D >= 1 && p.D <= small && p.D <= math.MaxInt32:
		return &Plan{Params: p}, nil
	}
	coded, err := sketchedsgd.NewPlan(p)
	if err != nil {
		return nil, err
	}
	return &Plan{coded.Params, coded}, nil
}

// small reports whether the tensor goes uncompressed.
func (p *Plan) small() bool { return p.coded == nil }
