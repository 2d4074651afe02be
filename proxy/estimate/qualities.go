package estimate

import (
	"math"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/tensor"
)

// qualities are the Metrics of an Estimator, of the path and of the value cache: they keep the few figures that it
// tells, and nothing else.
type qualities struct {
	path.NoMetrics

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

// Drifts does nothing.
func (q *qualities) Drifts(string) {}

// SharedValue does nothing.
func (q *qualities) SharedValue(string) {}

// WrongReference does nothing.
func (q *qualities) WrongReference() {}
