package sketched

import "github.com/gradproxy/gradproxy/codecs/sketchedsgd"

// A Cost is the traffic of one worker in a step, in values, as section 5.3 counts: without the coordinates that are
// asked for and that are updated, "since these quantities can be efficiently coded".
type Cost struct{ Up, Down int }

// CostOf returns |S| + Pk up and k down, which does not depend on the number of workers.
func CostOf(p sketchedsgd.Params) Cost { return Cost{p.Rows*p.Columns + p.Candidates(), p.K} }

// Cost returns CostOf a plan's parameters; for a small tensor d and d.
func (p *Plan) Cost() Cost {
	if p.small() {
		return Cost{p.D, p.D}
	}
	return CostOf(p.Params)
}

// Factor returns the factor by which that is less than 2d, "the cost to send a (dense) gradient and receive a new
// (dense) parameter vector": 2d/(|S| + Pk + k). It is +Inf if nothing is sent.
func (c Cost) Factor(d int) float64 { return 2 * float64(d) / float64(c.Up+c.Down) }
