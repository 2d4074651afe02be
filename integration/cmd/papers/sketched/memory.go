package sketched

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
)

// A Forget chooses the residual that a worker keeps at coordinates that a step has updated.
type Forget uint8

const (
	Sent Forget = iota // v <- 0: all that it has sent is in the update (Algorithm 3, line 13)
	Mean               // v <- v - g̃, the mean over the workers (Algorithm 2, line 9)
)

// Memory configures a worker's memory from step to step. The zero Memory is plain error accumulation.
type Memory struct {
	// Momentum is m of Algorithm 3, 0 <= m < 1: momentum correction, since the residual accumulates not the gradient
	// but the momentum's velocity u.
	Momentum float32
	// Masking is momentum factor masking: u <- 0 where a step has updated (Algorithm 3, line 13).
	Masking bool
	Forget  Forget
}

func (m Memory) check() error {
	if !(m.Momentum >= 0 && m.Momentum < 1) || m.Forget > Mean {
		return fmt.Errorf("sketched: momentum is %v, forget %d; write 0 to less than 1, Sent or Mean", m.Momentum, m.Forget)
	}
	return nil
}

// vectors are one worker's memory of one tensor.
type vectors struct {
	Memory
	u []float32 // velocity; nil without momentum
	v []float32 // the residual
}

func newVectors(m Memory, d int) vectors {
	r := vectors{Memory: m, v: make([]float32, d)}
	if m.Momentum > 0 {
		r.u = make([]float32, d)
	}
	return r
}

// accumulate does lines 5 and 6 of Algorithm 3: u <- m·u + g, v <- v + u. Without momentum, u is g. It returns an error
// that wraps codecs.ErrUnsuited, and changes nothing, if a magnitude would exceed limit.
func (r *vectors) accumulate(g []float32, limit float32) error {
	if len(g) != len(r.v) {
		panic(fmt.Sprintf("sketched: a gradient of %d values for a worker of %d", len(g), len(r.v)))
	}
	for i, x := range g {
		u, v := r.next(i, x)
		if !(math.Abs(float64(u)) <= float64(limit) && math.Abs(float64(v)) <= float64(limit)) {
			return fmt.Errorf("%w: sketched: value %d is %v, and %v with what was kept; sums may overflow from %v on", codecs.ErrUnsuited, i, x, v, limit)
		}
	}
	for i, x := range g {
		u, v := r.next(i, x)
		r.v[i] = v
		if r.u != nil {
			r.u[i] = u
		}
	}
	return nil
}

func (r *vectors) next(i int, g float32) (u, v float32) {
	if r.u != nil {
		g += float32(r.Momentum * r.u[i])
	}
	return g, r.v[i] + g
}

// forget notes that a step has updated coordinate i, by a sum over workers.
func (r *vectors) forget(i uint64, sum float32, workers int) {
	if r.Forget == Mean {
		r.v[i] -= sum / float32(workers)
	} else {
		r.v[i] = 0
	}
	if r.u != nil && r.Masking {
		r.u[i] = 0
	}
}
