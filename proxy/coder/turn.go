package coder

// Turns has the blocks of a slot coded one at a time, in the order in which Next was called, by whatever goroutines. The zero
// Turns is ready. Next must not be called by several goroutines at a time.
type Turns struct{ last chan struct{} }

// A Turn is one block's.
type Turn struct{ before, done chan struct{} }

// Next returns the turn after the one that it returned last.
func (t *Turns) Next() Turn {
	turn := Turn{t.last, make(chan struct{})}
	t.last = turn.done
	return turn
}

// Begin waits until the turn before has ended.
func (t Turn) Begin() {
	if t.before != nil {
		<-t.before
	}
}

// End lets the next turn begin. It must be called once, also where nothing was coded.
func (t Turn) End() { close(t.done) }

// Done is closed at the turn's end.
func (t Turn) Done() chan struct{} { return t.done }
