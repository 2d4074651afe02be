package shadow

import "time"

// A Measure is the result of coding one value, or the sum of the results for several values.
type Measure struct {
	Raw, Wire int64         // bytes of the values, and of the frames that carry them
	Early     int64         // how many bytes of Raw came while the residual was still growing
	Coding    time.Duration // processor time of one core
	Measured  int           // blocks over which Error and Residual are sums
	Error     float64       // norm of a block's loss over the norm of the value that was encoded
	Residual  float64       // norm of a block's residual over the norm of its value
	Behind    int           // blocks that travelled exactly since receivers were too far behind
	Near      int64         // how many bytes of Raw are of tensors whose residual is near the guard's limit; only sums of tensors have it
	Exact     bool          // a block was coded by another codec than the candidate, as the blocks of a new tensor are
}

// residual returns the mean residual ratio of the measured blocks.
func (m *Measure) residual() float64 { return m.Residual / float64(max(1, m.Measured)) }

func (m *Measure) add(o *Measure) {
	m.Raw += o.Raw
	m.Wire += o.Wire
	m.Early += o.Early
	m.Coding += o.Coding
	m.Measured += o.Measured
	m.Error += o.Error
	m.Residual += o.Residual
	m.Behind += o.Behind
	m.Near += o.Near
}

// nearly is the part of the guard's limit from which a tensor's mean residual is near it. The residual of such a tensor
// crosses the limit now and then. The values at which it does depend on all values before them, so the guard may act on
// the path though it has not acted in the trial, or the other way round.
const nearly = 0.75

// A prediction is in doubt beyond these parts of a candidate's sample, in bytes.
const (
	TolerablyEarly = 0.1  // of values that came while the residual was still growing
	TolerablyNear  = 0.05 // of tensors whose residual is near the guard's limit
)

// near notes whether the residual of the tensor whose sum m is lies near the guard's limit.
func (m *Measure) near(limit float64) {
	if m.residual() > nearly*limit {
		m.Near = m.Raw
	}
}

// settle adds o, the sum of a window. If one of m and o is early and the other is not, only the latter remains.
func (m *Measure) settle(o *Measure) {
	switch {
	case o.Raw == 0, o.Early > 0 && m.Raw > m.Early:
	case m.Early > 0 && o.Early == 0:
		*m = *o
	default:
		m.add(o)
	}
}
