package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
)

// synchronized trains on the wire of TensorFlow, with the exchange of its SyncReplicasOptimizer: the workers at the
// near site, the parameter server at the far one. Each pulls the other's tensors. Workers call the server on
// connections of their own, and the server calls each worker on another. A worker's step ends when the mean of all
// workers' gradients is applied, which the server does by itself: in TensorFlow the first worker has it done, and hands
// out tokens for the next step.
func synchronized(ctx context.Context, r *run) (trained, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	j := &tfJob{run: r, model: r.model(0), optimizer: train.SGD{Rate: rate, Momentum: momentum}, gradients: make([][][]float32, ranks), applied: make(chan struct{})}
	defer func() {
		cancel(nil)
		j.close()
	}()
	server, err := j.serve(ctx, cancel, r.path.Forward, &j.server)
	if err != nil {
		return trained{}, err
	}
	j.server.Run = j.step
	for i := range ranks {
		w := &tfWorker{job: j, number: i, model: r.model(i), session: fmt.Sprint("session-", i), server: tensorflowsim.NewPeer(server, j.dial)}
		j.workers = append(j.workers, w)
		addr, err := j.serve(ctx, cancel, r.path.Backward, &w.process)
		if err != nil {
			return trained{}, err
		}
		w.peer = tensorflowsim.NewPeer(addr, j.dial)
	}
	begin := time.Now()
	var all sync.WaitGroup
	for _, w := range j.workers {
		all.Go(func() {
			if err := w.train(ctx); err != nil {
				cancel(fmt.Errorf("worker %d: %w", w.number, err))
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return trained{}, context.Cause(ctx)
	}
	t := trained{appBytes: j.sent.Load(), seconds: time.Since(begin).Seconds()}
	for _, w := range j.workers {
		t.replicas = append(t.replicas, w.model)
	}
	return t, nil
}

// A tfJob is a training, and the state of its parameter server.
type tfJob struct {
	run     *run
	server  tensorflowsim.Process
	workers []*tfWorker
	serving sync.WaitGroup
	sent    atomic.Int64 // bytes that all have written

	mu        sync.Mutex // guards the fields below
	model     *train.MLP // the variables
	optimizer train.SGD
	gradients [][][]float32 // of the step under way, by worker; nil: not here yet
	came      int           // workers whose gradients are here
	applied   chan struct{} // closed when the gradients of all have been
}

// serve has a process answer calls until ctx is done, and returns the address at which the other site calls it.
func (j *tfJob) serve(ctx context.Context, fail func(error), cross Between, p *tensorflowsim.Process) (string, error) {
	l, err := listen(ctx)
	if err != nil {
		return "", err
	}
	across, err := cross(l.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		l.Close()
		return "", err
	}
	j.serving.Go(func() {
		if err := p.Serve(ctx, counted{l, &j.sent}); err != nil {
			fail(err)
		}
	})
	return across.String(), nil
}

// dial connects to a process, and counts the bytes that are written.
func (j *tfJob) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, &j.sent}, nil
}

// close waits until no process answers any more, since the job is done, and closes the connections of calls.
func (j *tfJob) close() {
	j.serving.Wait()
	for _, w := range j.workers {
		w.server.Close()
		if w.peer != nil {
			w.peer.Close()
		}
	}
}

// id is the number by which the two ends know a worker's step. Numbers of all workers differ.
func (w *tfWorker) id(step int) uint64 { return uint64(step*ranks + w.number + 1) }

// step runs a worker's step on the server: it has the variables for the worker, pulls the worker's gradients, and waits
// until the gradients of all workers are applied. In the step behind the last one the worker only reads the variables.
func (j *tfJob) step(ctx context.Context, session string, id uint64) error {
	number := int(id-1) % ranks
	w, step := j.workers[number], int(id-1)/ranks
	if session != w.session {
		return fmt.Errorf("worker %d runs a step of %s", number, session)
	}
	j.mu.Lock()
	params, applied := j.model.Params(), j.applied
	for i, p := range params {
		j.server.Send(id, w.read(i), protoOf(p.Value, p.Shape))
	}
	j.mu.Unlock()
	if step == j.run.Steps {
		return nil
	}
	gradients, err := pull(ctx, w.peer, id, params, w.gradient)
	if err != nil {
		return err
	}
	if err := j.add(number, gradients); err != nil {
		return err
	}
	select {
	case <-applied:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// add adds a worker's gradients to the gradients of the step, and applies their mean when all are there.
func (j *tfJob) add(number int, gradients [][]float32) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.gradients[number] = gradients
	if j.came++; j.came < ranks {
		return nil
	}
	mean, err := average(j.gradients)
	if err != nil {
		return err
	}
	params := j.model.Params()
	for i, p := range params {
		copy(p.Grad, mean[i])
	}
	j.optimizer.Step(params)
	close(j.applied)
	j.came, j.applied = 0, make(chan struct{})
	return nil
}

// A tfWorker is a worker.
type tfWorker struct {
	job     *tfJob
	number  int
	model   *train.MLP
	session string
	process tensorflowsim.Process
	server  *tensorflowsim.Peer // as the worker calls it
	peer    *tensorflowsim.Peer // the worker, as the server calls it
}

// device is the worker's.
func (w *tfWorker) device() string { return tensorflowsim.WorkerDevice(w.number) }

// readEdge and gradientEdge name the edges of a parameter's value and of its gradient.
func readEdge(param int) string     { return fmt.Sprintf("edge_%d_w%d/read", 2*param, param) }
func gradientEdge(param int) string { return fmt.Sprintf("edge_%d_gradients/w%d", 2*param+1, param) }

// read is the key of a parameter's value.
func (w *tfWorker) read(param int) string {
	return tensorflowsim.Key(tensorflowsim.Server, w.device(), readEdge(param))
}

// gradient is the key of a parameter's gradient.
func (w *tfWorker) gradient(param int) string {
	return tensorflowsim.Key(w.device(), tensorflowsim.Server, gradientEdge(param))
}

// graph is the server's part of the worker's graph: it sends variables, and collects gradients in accumulators.
func (w *tfWorker) graph() (nodes []tensorflowsim.Node) {
	for i := range w.model.Params() {
		v, read, gradient := fmt.Sprint("w", i), readEdge(i), gradientEdge(i)
		nodes = append(nodes,
			tensorflowsim.Node{Name: v, Op: "VariableV2"},
			tensorflowsim.Node{Name: v + "/read", Op: "Identity", Inputs: []string{v}},
			tensorflowsim.Node{Name: v + "/send", Op: "_Send", Inputs: []string{v + "/read"}, From: tensorflowsim.Server, To: w.device(), Edge: read},
			tensorflowsim.Node{Name: v + "/gradient", Op: "_Recv", From: w.device(), To: tensorflowsim.Server, Edge: gradient},
			tensorflowsim.Node{Name: v + "/accumulator", Op: "ConditionalAccumulator"},
			tensorflowsim.Node{Name: v + "/step", Op: "Const"},
			tensorflowsim.Node{Name: v + "/apply", Op: "AccumulatorApplyGradient", Inputs: []string{v + "/accumulator", v + "/step", v + "/gradient"}})
	}
	return nodes
}

// train trains, and gets the last variables.
func (w *tfWorker) train(ctx context.Context) error {
	if err := w.server.Register(ctx, w.session, w.graph()); err != nil {
		return err
	}
	feed := w.job.run.feed(w.number)
	for step := range w.job.run.Steps {
		loss, err := w.step(ctx, step, feed)
		if err != nil {
			return err
		}
		if w.number == 0 {
			w.job.run.step(loss)
		}
	}
	_, err := w.step(ctx, w.job.run.Steps, nil)
	return err
}

// step runs a step: the worker pulls the variables and has the gradients of the feed's next batch, if there is one, for
// the server.
func (w *tfWorker) step(ctx context.Context, step int, feed *feed) (loss float64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	id := w.id(step)
	var server sync.WaitGroup
	server.Go(func() {
		if err := w.server.Run(ctx, w.session, id); err != nil {
			cancel(err)
		}
	})
	params := w.model.Params()
	values, err := pull(ctx, w.server, id, params, w.read)
	if err == nil {
		for i, p := range params {
			copy(p.Value, values[i])
		}
		if feed != nil {
			images, labels := feed.next()
			loss = w.model.Step(images, labels, func(i int) {
				w.process.Send(id, w.gradient(i), protoOf(params[i].Grad, params[i].Shape))
			})
		}
	} else {
		cancel(err)
	}
	server.Wait()
	return loss, context.Cause(ctx)
}

// protoOf returns a TensorProto.
func protoOf(values []float32, shape []int) []byte {
	content := make([]byte, 0, 4*len(values))
	for _, v := range values {
		content = binary.LittleEndian.AppendUint32(content, math.Float32bits(v))
	}
	dims := make([]uint64, len(shape))
	for i, n := range shape {
		dims[i] = uint64(n)
	}
	return tensorflowsim.Tensor(1, content, dims...)
}

// pull pulls a tensor for each parameter, all at the same time, and returns their values.
func pull(ctx context.Context, from *tensorflowsim.Peer, id uint64, params []train.Param, key func(param int) string) ([][]float32, error) {
	values, errs := make([][]float32, len(params)), make([]error, len(params))
	var all sync.WaitGroup
	for i, p := range params {
		all.Go(func() {
			response, err := from.Recv(ctx, id, key(i))
			content := tensorflowsim.Content(response)
			if err == nil && len(content) != 4*len(p.Value) {
				err = fmt.Errorf("%s has %d bytes, want %d", key(i), len(content), 4*len(p.Value))
			}
			if errs[i] = err; err != nil {
				return
			}
			values[i] = make([]float32, len(p.Value))
			for k := range values[i] {
				values[i][k] = math.Float32frombits(binary.LittleEndian.Uint32(content[4*k:]))
			}
		})
	}
	all.Wait()
	return values, errors.Join(errs...)
}
