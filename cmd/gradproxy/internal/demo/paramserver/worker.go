package paramserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
)

// A Worker is one worker's end of a job. Its methods are called by one goroutine, but for Close; all workers make the
// same calls, with the same keys, in the same order.
type Worker struct {
	node *pslitesim.Node
	Config
	rank int

	mu      sync.Mutex
	clock   int32 // timestamp of the next request
	pending map[int32]*Request
	arrays  map[int]*keyed
}

// A keyed array as the worker knows it.
type keyed struct {
	size   int // elements
	parts  []part
	pushed *Request // the last one
}

// A Request is a push, a pull or a command under way.
type Request struct {
	worker    *Worker
	timestamp int32
	what      string
	meta      pslitesim.Meta
	dst       []float32 // nil: nothing is pulled
	parts     []part    // the parts with answers due; nil for a command
	left      int       // answers
	done      chan struct{}
	err       error
}

// NewWorker joins a job and returns when all its nodes have. When ctx is done, also later, the worker fails.
func NewWorker(ctx context.Context, c Config) (*Worker, error) {
	w := &Worker{Config: c, pending: make(map[int32]*Request), arrays: make(map[int]*keyed)}
	node, err := pslitesim.Start(ctx, pslitesim.Worker, c.Config, w)
	if err != nil {
		return nil, err
	}
	w.node, w.rank = node, pslitesim.Rank(node.ID())
	w.Config.Config = node.Config
	if w.rank == 0 { // kvstore.cc, Create
		if err := w.command(commandSync, nil); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// Rank returns the worker's number, from 0. The order is that of the addresses that the workers publish.
func (w *Worker) Rank() int { return w.rank }

// Workers returns the number of workers.
func (w *Worker) Workers() int { return w.Config.Workers }

// SetOptimizer says how the servers change the weights. Every worker calls it, before Init; without it the servers send
// back sums of gradients.
func (w *Worker) SetOptimizer(o SGD) error { return w.command(commandOptimizer, o.pickle()) }

// Init gives an array of a new key worker 0's value, and returns when all workers can pull it. Keys are counted from 0.
func (w *Worker) Init(key int, value []float32) error {
	if w.rank == 0 {
		if err := w.Push(key, value).Wait(); err != nil {
			return err
		}
	}
	return w.Barrier()
}

// Barrier waits for all workers.
func (w *Worker) Barrier() error { return w.node.Barrier(pslitesim.GroupWorkers) }

// Push sends a gradient. It is done when all workers' gradients have been added. The last push of the same key must be
// done.
func (w *Worker) Push(key int, gradient []float32) *Request {
	return w.start("push", key, gradient, nil)
}

// Pull gets an array. dst, of its size, belongs to the Request until it is done.
func (w *Worker) Pull(key int, dst []float32) *Request {
	return w.start("pull", key, nil, dst)
}

// PushPull sends a gradient and gets the new array. The last push of the same key must be done.
func (w *Worker) PushPull(key int, gradient, dst []float32) *Request {
	return w.start("push and pull", key, gradient, dst)
}

// Reconnect closes the connections between this worker and the servers, and the scheduler, and returns when they stand
// again under the same identities. No request may be under way.
func (w *Worker) Reconnect(ctx context.Context) error {
	ids := []int32{pslitesim.SchedulerID} // whose last answer would be lost with a connection that it has not noticed to be
	for i := range w.Servers {
		ids = append(ids, pslitesim.ServerID(i))
	}
	return w.node.Reconnect(ctx, ids...)
}

// Finish ends the job, which all workers do, and closes the worker (kvstore_dist.h, ~KVStoreDist).
func (w *Worker) Finish() error {
	defer w.Close()
	if err := w.Barrier(); err != nil {
		return err
	}
	if w.rank == 0 {
		if err := w.command(commandStop, nil); err != nil {
			return err
		}
	}
	return w.node.Finish()
}

// Close leaves the job at once; requests under way fail. It may be called more than once, and by any goroutine.
func (w *Worker) Close() { w.node.Close() }

// Wait returns when the request is done. After an error the worker is of no more use.
func (r *Request) Wait() error {
	if r.worker == nil {
		return r.err
	}
	w := r.worker
	select {
	case <-r.done:
		return r.err
	case <-w.node.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending[r.timestamp] != r {
		return r.err // done just before
	}
	delete(w.pending, r.timestamp) // so that dst is let go
	return fmt.Errorf("paramserver: %s by worker %d: %w", r.what, w.rank, w.node.Err())
}

// command sends a command to all servers, and waits for their answers (kvstore_dist.h, SendCommandToServers).
func (w *Worker) command(head int32, body []byte) error {
	r := &Request{what: fmt.Sprintf("command %d", head), left: w.Servers}
	r.meta = pslitesim.Meta{Head: head, Body: body, Request: true, SimpleApp: true}
	w.add(r)
	for i := range w.Servers {
		w.node.Send(pslitesim.ServerID(i), r.meta)
	}
	return r.Wait()
}

// start sends a data request. A nil gradient is not pushed, and a nil dst not pulled.
func (w *Worker) start(what string, key int, gradient, dst []float32) *Request {
	r := &Request{what: fmt.Sprintf("%s of key %d", what, key), dst: dst}
	size := max(len(gradient), len(dst))
	a, err := w.array(key, size)
	switch {
	case err != nil:
	case size == 0:
		err = errors.New("no elements")
	case gradient != nil && len(gradient) != size || dst != nil && len(dst) != size:
		err = fmt.Errorf("%d elements are pushed and %d pulled", len(gradient), len(dst))
	case gradient != nil && a.pushed != nil && !a.pushed.isDone():
		err = errors.New("its last push is under way")
	}
	if err != nil {
		r.err = fmt.Errorf("paramserver: %s: %w", r.what, err)
		return r
	}
	var wire []byte // not reused: an answer may come before the writer of the connection has let go of it
	if gradient != nil {
		wire = make([]byte, size*float32Len)
		encode(wire, gradient)
		a.pushed = r
	}
	r.parts, r.left = make([]part, len(a.parts)), len(a.parts)
	copy(r.parts, a.parts)
	r.meta = pslitesim.Meta{Head: headDense, Request: true, Push: gradient != nil, Pull: dst != nil}
	w.add(r)
	for _, p := range a.parts {
		data := p.request()
		if gradient != nil {
			data = p.message(wire[p.from*float32Len : p.to*float32Len])
		}
		m := r.meta
		m.DataTypes = types(len(data))
		w.node.Send(pslitesim.ServerID(p.server), m, data...)
	}
	return r
}

// array returns the worker's state of a key, and makes it if the key is new.
func (w *Worker) array(key, size int) (*keyed, error) {
	a := w.arrays[key]
	switch {
	case a != nil && a.size != size:
		return nil, fmt.Errorf("%d elements, where it had %d", size, a.size)
	case a == nil:
		a = &keyed{size: size, parts: split(key, size, w.Servers, w.BigArray)}
		w.arrays[key] = a
	}
	return a, nil
}

// add gives a request its timestamp, before it is sent.
func (w *Worker) add(r *Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.worker, r.done = w, make(chan struct{})
	r.timestamp, r.meta.Timestamp = w.clock, w.clock
	w.clock++
	w.pending[r.timestamp] = r
}

func (r *Request) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}
