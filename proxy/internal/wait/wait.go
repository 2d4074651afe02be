// Package wait waits.
package wait

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends.
func For(ctx context.Context, d time.Duration) { Unless(ctx.Done(), d) }

// Unless waits for d and returns true, or until gone is closed, and returns false.
func Unless(gone <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-gone:
		return false
	}
}
