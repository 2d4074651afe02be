// Package pipe is the ordered parallel stage of the path: work on the items of one connection is spread over the
// processor's cores, and what comes of it leaves in the order in which the items came.
//
// The stages, as in WireGuard's device: (1) the connection's reader submits items in order, (2) the workers of a [Pool],
// which all connections share, do their work in any order, (3) one emitter per [Pipe] sends the finished ones in order.
// Only the emitter may block, so a peer that does not read holds up nobody's work but its own. The emitter lives while
// there is something to emit: an idle connection has no goroutine here.
package pipe

import (
	"runtime"
	"sync"
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

// Close ends the workers once they have finished what they are doing. Items that are submitted afterwards are worked
// on by their submitter.
func (p *Pool) Close() { p.once.Do(func() { close(p.stop) }) }

// A Pipe keeps the items of one connection and direction in order. It has one submitter. The zero Pipe is not usable;
// see New.
type Pipe struct {
	pool *Pool
	room chan struct{} // a token for each item that is under way

	mu    sync.Mutex
	queue []item
	runs  bool // an emitter runs
	err   error
	idle  sync.Cond
}

type item struct {
	done chan struct{} // closed when the work is done; nil: there was none
	emit func() error
}

// New returns a Pipe with at most depth items under way.
func New(pool *Pool, depth int) *Pipe {
	p := &Pipe{pool: pool, room: make(chan struct{}, depth)}
	p.idle.L = &p.mu
	return p
}

// Try calls emit at once if nothing is under way, and reports whether it did. The submitter spares itself a copy: what is
// emitted at once need not outlive the call.
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

// Do submits an item: work, which may be nil, is done by any core and must not block; emit is called after the emits of
// all items before. Do waits while depth items are under way. It returns the first error of an emit, after
// which no emit is called any more, though all work is still done.
func (p *Pipe) Do(work func(), emit func() error) error {
	if work == nil {
		if done, err := p.Try(emit); done || err != nil {
			return err
		}
	}
	p.room <- struct{}{}
	it := item{emit: emit}
	if work != nil {
		it.done = make(chan struct{})
	}
	p.mu.Lock()
	p.queue = append(p.queue, it)
	start := !p.runs
	p.runs = true
	err := p.err
	p.mu.Unlock()
	if start {
		go p.emit()
	}
	if work != nil {
		done := it.done
		job := func() { work(); close(done) }
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
		it := p.queue[0]
		p.queue[0] = item{}
		p.queue = p.queue[1:]
		err := p.err
		p.mu.Unlock()
		if it.done != nil {
			<-it.done
		}
		if err == nil {
			p.fail(it.emit())
		}
		<-p.room
	}
}

func (p *Pipe) fail(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
}

// Wait waits until everything that was submitted has been emitted, and returns the first error.
func (p *Pipe) Wait() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.runs {
		p.idle.Wait()
	}
	return p.err
}
