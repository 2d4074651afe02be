package handover

import (
	"context"
	"time"
)

// The stages of a hand-over that wait, each with a bound of its own: a connection that is late at one must not cost
// others their time for the next.
const (
	asked   = iota // peers have taken the request
	resting        // connections are at rest here
	rested         // and at the peers
	stages
)

// A patience has the end of each stage; nil: none ends before the hand-over does.
type patience []context.Context

// patienceOf returns the bounds where connections are reset that are not at rest here after so long; 0: none are.
func patienceOf(ctx context.Context, limit time.Duration) (patience, context.CancelFunc) {
	if limit <= 0 {
		return nil, func() {}
	}
	ends, cancels := make(patience, stages), make([]context.CancelFunc, stages)
	for i := range ends {
		ends[i], cancels[i] = context.WithTimeout(ctx, limit*time.Duration(1+i)/2)
	}
	return ends, func() {
		for _, c := range cancels {
			c()
		}
	}
}

// wait returns the context of a wait in a stage.
func (p patience) wait(ctx context.Context, stage int) context.Context {
	if p != nil {
		return p[stage]
	}
	return ctx
}

// over reports whether a stage has lasted too long.
func (p patience) over(ctx context.Context, stage int) bool {
	return p != nil && ctx.Err() == nil && p[stage].Err() != nil
}
