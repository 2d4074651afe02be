package coder

// Turns has the blocks of a slot coded one at a time, in the order in which Next was called, by whatever goroutines. The zero
// Turns is ready. Next must not be called by several goroutines at a time.
type Turns struct{ last chan struct{} }

// A Ticket is one block's place in Turns.
type Ticket struct{ before, done chan struct{} }

// Next returns the ticket after the one that it returned last.
func (t *Turns) Next() Ticket {
	turn := Ticket{t.last, make(chan struct{})}
	t.last = turn.done
	return turn
}

// Begin waits until the turn before has ended.
func (t Ticket) Begin() {
	if t.before != nil {
		<-t.before
	}
}

// End lets the next turn begin. It must be called once, also where nothing was coded.
func (t Ticket) End() { close(t.done) }

// Done is closed at the turn's end.
func (t Ticket) Done() chan struct{} { return t.done }
