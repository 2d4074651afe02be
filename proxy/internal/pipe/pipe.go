// Package pipe is the ordered parallel stage of the path: work on the items of one connection is spread over the
// processor's cores, and its results leave in the order in which the items came.
//
// The stages, as in WireGuard's device: (1) the connection's reader submits items in order, (2) the workers of a
// [Pool], which all connections share, do their work in any order, (3) one emitter per [Pipe] sends the finished ones
// in order. Only the emitter may block, so a peer that does not read holds up nobody's work but its own. The emitter
// lives while there is something to emit: an idle connection has no goroutine here.
package pipe

import (
	"runtime"
	"sync"
	"time"
)

// A Pool is the workers that Pipes share. The zero Pool is not usable; see NewPool.
type Pool struct {
	work chan func()
	stop chan struct{}
	once sync.Once
}

// NewPool starts n workers, or one per core if n is not positive.
func NewPool(n int) *Pool {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	p := &Pool{work: make(chan func()), stop: make(chan struct{})}
	for range n {
		go p.run()
	}
	return p
}

func (p *Pool) run() {
	for {
		select {
		case f := <-p.work:
			f()
		case <-p.stop:
			return
		}
	}
}

// Close ends the workers once they have finished their work. Items that are submitted afterwards are worked
// on by their submitter.
func (p *Pool) Close() { p.once.Do(func() { close(p.stop) }) }

// A Pipe keeps the items of one connection and direction in order. It has one submitter. The zero Pipe is not usable;
// see New.
type Pipe struct {
	pool   *Pool
	failed func(error)
	room   chan struct{} // a token for each item that is under way

	mu    sync.Mutex
	queue []entry
	runs  bool // an emitter runs
	err   error
	idle  sync.Cond
}

// An Item goes through a Pipe. Fields that are nil are left out.
type Item struct {
	// Work is done by any core. It may wait for the Work of items that were submitted before, in this Pipe, and for
	// nothing else: earlier items are handed to the cores first, since there is one submitter and Pools do not queue.
	Work func()
	Emit func() error // called after the Emits of all items before, unless one of them has failed
	Done func()       // called last, in any case: it gives back the item's memory
}

type entry struct {
	Item
	worked chan struct{} // closed when Work is done; nil: there is none
}

// HandOver is how long work on n bytes must take to be worth another core's while: to wake one that sleeps takes tens
// of microseconds of both, and to have it fetch the bytes out of this one's caches about as long as the quickest work
// on them. Quicker work is done by the submitter, in Try.
func HandOver(n int) time.Duration {
	const wake, bytesPerMicrosecond = 100 * time.Microsecond, 5 << 10
	return wake + time.Duration(n)*time.Microsecond/bytesPerMicrosecond
}

// New returns a Pipe with at most depth items under way. failed, which may be nil, is called once, with the first error
// of an Emit: the submitter may be waiting elsewhere.
func New(pool *Pool, depth int, failed func(error)) *Pipe {
	p := &Pipe{pool: pool, failed: failed, room: make(chan struct{}, depth)}
	p.idle.L = &p.mu
	return p
}

// Idle reports whether nothing is under way. The effects of the Works of earlier items are then there for the submitter
// to see.
func (p *Pipe) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.runs
}

// Try calls emit at once if nothing is under way, and reports whether it did. The submitter spares itself a copy: bytes
// that are emitted at once need not outlive the call.
func (p *Pipe) Try(emit func() error) (done bool, err error) {
	p.mu.Lock()
	runs, err := p.runs, p.err
	p.mu.Unlock()
	if runs || err != nil {
		return false, err
	}
	err = emit()
	p.fail(err)
	return true, err
}

// Do submits an item, and waits while depth items are under way. It returns the first error of an Emit so far; the item
// then is only worked on and given back.
func (p *Pipe) Do(it Item) error {
	p.room <- struct{}{}
	e := entry{Item: it}
	if it.Work != nil {
		e.worked = make(chan struct{})
	}
	p.mu.Lock()
	p.queue = append(p.queue, e)
	start := !p.runs
	p.runs = true
	err := p.err
	p.mu.Unlock()
	if start {
		go p.emit()
	}
	if it.Work != nil {
		job := func() { it.Work(); close(e.worked) }
		select {
		case p.pool.work <- job:
		case <-p.pool.stop:
			job()
		}
	}
	return err
}

// emit sends items in order until there are none.
func (p *Pipe) emit() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.runs, p.queue = false, nil
			p.idle.Broadcast()
			p.mu.Unlock()
			return
		}
		e := p.queue[0]
		p.queue[0] = entry{}
		p.queue = p.queue[1:]
		err := p.err
		p.mu.Unlock()
		if e.worked != nil {
			<-e.worked
		}
		if err == nil && e.Emit != nil {
			p.fail(e.Emit())
		}
		if e.Done != nil {
			e.Done()
		}
		<-p.room
	}
}

func (p *Pipe) fail(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = err
	}
	p.mu.Unlock()
	if first && p.failed != nil {
		p.failed(err)
	}
}

// Wait waits until everything that was submitted has left, and returns the first error.
func (p *Pipe) Wait() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.runs {
		p.idle.Wait()
	}
	return p.err
}
