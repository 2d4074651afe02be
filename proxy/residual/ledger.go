package residual

import "sync/atomic"

// A ledger counts the memory of a Store and orders the uses of its tensors and rows. mu guards all fields but changes.
type ledger struct {
	mu      lock
	limit   int64
	bytes   int64
	tick    uint64        // of the last use
	short   bool          // the limit was too little once
	changes atomic.Uint64 // of residuals that outlive their connection

	lostRows func(n int) // counts rows whose residual is lost; may be nil
}

// now returns the next tick. mu is held.
func (l *ledger) now() uint64 {
	l.tick++
	return l.tick
}
