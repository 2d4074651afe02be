package coder

import "sync"

// Turns lets the blocks of a slot be coded one at a time, in the order of the calls of Next, by any goroutines. The
// zero Turns is ready for use. Only one goroutine at a time may call Next. A copy of a Turns that has been used is the
// same Turns.
type Turns struct{ *turns }

// A Ticket is one block's place in Turns.
type Ticket struct {
	*turns
	number uint64
}

type turns struct {
	next uint64 // tickets so far

	mu      sync.Mutex
	ended   uint64        // tickets whose turns have ended
	changed chan struct{} // closed when ended changes; nil: nobody waits
}

// Next returns the ticket after the one that it returned last.
func (t *Turns) Next() Ticket {
	if t.turns == nil {
		t.turns = new(turns)
	}
	turn := Ticket{t.turns, t.next}
	t.next++
	return turn
}

// Begin waits until the turn before has ended.
func (t Ticket) Begin() { t.await(t.number) }

// Await waits until the turn has ended.
func (t Ticket) Await() { t.await(t.number + 1) }

// End lets the next turn begin. It must be called once, even if nothing was coded.
func (t Ticket) End() {
	t.mu.Lock()
	t.ended++
	changed := t.changed
	t.changed = nil
	t.mu.Unlock()
	if changed != nil {
		close(changed)
	}
}

// await waits until the turns of the first n tickets have ended.
func (t *turns) await(n uint64) {
	for {
		t.mu.Lock()
		if t.ended >= n {
			t.mu.Unlock()
			return
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		<-changed
	}
}
