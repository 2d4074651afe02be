package proxy

import (
	"math"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/tensor"
)

// A Quality sums up the effects of an Estimator's codecs on the values of one role.
type Quality struct {
	Coding time.Duration // of one core, lossless blocks included

	// Of blocks that may have lost something one in eight is measured:
	Measured int     // blocks
	Error    float64 // sum over them: norm of the loss over the norm of the value that was encoded, which feedback is part of
	Residual float64 // sum over them: norm of the residual over the norm of the value; differences to the receiver's value have none
	Behind   int     // blocks that travelled exactly since receivers were too far behind

	codec string // of the last block that was encoded
	mixed bool   // there was another before
}

// Only reports whether all blocks were encoded by one codec, by its text. It is true if there were none.
func (q *Quality) Only(codec string) bool { return q.codec == "" || q.codec == codec && !q.mixed }

// Blocks reports whether any block was encoded.
func (q *Quality) Blocks() bool { return q.codec != "" }

// Add adds the figures of o.
func (q *Quality) Add(o *Quality) {
	q.Coding += o.Coding
	q.Measured += o.Measured
	q.Error += o.Error
	q.Residual += o.Residual
	q.Behind += o.Behind
}

// MeanError returns the mean relative error of the blocks that were measured.
func (q *Quality) MeanError() float64 { return q.Error / float64(max(1, q.Measured)) }

// MeanResidual returns their mean residual, relative to the value.
func (q *Quality) MeanResidual() float64 { return q.Residual / float64(max(1, q.Measured)) }

// qualities are the Metrics of an Estimator: they keep the few figures that it tells, and nothing else.
type qualities struct {
	*Metrics // nil, which counts nothing

	mu  sync.Mutex
	all [tensor.State + 1]Quality
}

func (q *qualities) of(r tensor.Role, change func(*Quality)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change(&q.all[r])
}

// take returns the figures of a role since the last call.
func (q *qualities) take(r tensor.Role) (taken Quality) {
	q.of(r, func(x *Quality) { taken, *x = *x, Quality{} })
	return taken
}

// Encoded notes a block.
func (q *qualities) Encoded(codec string, role tensor.Role, took time.Duration) {
	q.of(role, func(x *Quality) {
		x.Coding += took
		x.mixed = x.mixed || x.codec != "" && x.codec != codec
		x.codec = codec
	})
}

// Drifted notes a block's residual and its loss.
func (q *qualities) Drifted(_ string, role tensor.Role, ratio, relative float64) {
	if beyond(ratio) || beyond(relative) {
		return
	}
	q.of(role, func(x *Quality) { x.Measured, x.Error, x.Residual = x.Measured+1, x.Error+relative, x.Residual+ratio })
}

// beyond reports whether a ratio has no meaning: the value was zero.
func beyond(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

// Erred notes the part of a value that the receiver lacks.
func (q *qualities) Erred(_ string, role tensor.Role, relative float64) {
	if beyond(relative) {
		return
	}
	q.of(role, func(x *Quality) { x.Measured, x.Error = x.Measured+1, x.Error+relative })
}

// Guarded notes a block that travelled exactly.
func (q *qualities) Guarded(_ string, role tensor.Role, _ bool) {
	q.of(role, func(x *Quality) { x.Behind++ })
}
