package sketched

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

// ErrOrder says that a message or call is not the one that is due: of another step, out of turn, or a worker's second.
var ErrOrder = errors.New("sketched: out of order")

// A Worker has the gradients of one worker. Each step is Sketch, Values and Update in turn; of a small tensor, Sketch
// and Update. It is not safe for concurrent use.
type Worker struct {
	plan   *Plan
	memory vectors
	step   uint32
	phase  phase

	asked, updated []uint64 // the step's candidates, and the update's coordinates
	values         []float32
}

// A phase names the message or call that a half waits for.
type phase uint8

const (
	forFirst  phase = iota // a gradient (worker); sketches (server)
	forSecond              // candidates (worker); values (server)
	forUpdate              // the update (worker)
)

// NewWorker returns a Worker at step 0 with a memory of zeros.
func NewWorker(p *Plan, m Memory) (*Worker, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return &Worker{plan: p, memory: newVectors(m, p.D)}, nil
}

// Sketch adds the gradient g, in Algorithm 2 times the learning rate, to the residual, and appends the message with its
// sketch to dst; of a small tensor, with the tensor. It neither modifies nor retains g. On an error, dst and the worker
// are as before: one that wraps codecs.ErrUnsuited says that a value is not finite, or too large to be summed.
func (w *Worker) Sketch(dst []byte, g []float32) ([]byte, error) {
	if w.phase != forFirst {
		return dst, fmt.Errorf("%w: a gradient before step %d has its update", ErrOrder, w.step)
	}
	if err := w.memory.accumulate(g, sketchedsgd.Limit(w.plan.D)); err != nil {
		return dst, err
	}
	if w.plan.small() {
		w.phase = forUpdate
		return sketchedsgd.AppendValues(appendHead(dst, kindWhole, w.step), w.memory.v), nil
	}
	s := w.plan.coded.Take()
	defer w.plan.coded.Put(s)
	s.Insert(0, w.memory.v)
	dst, err := s.Append(appendHead(dst, kindSketch, w.step), w.plan.Cells)
	if err != nil {
		panic(err) // limit forbids it
	}
	w.phase = forSecond
	return dst, nil
}

// Values appends the answer to the server's message with candidates to dst: the exact values of the residual.
// On an error, which wraps codecs.ErrCorrupt or ErrOrder, dst and the worker are as before.
func (w *Worker) Values(dst, candidates []byte) ([]byte, error) {
	if w.phase != forSecond {
		return dst, fmt.Errorf("%w: candidates before the sketch of step %d", ErrOrder, w.step)
	}
	body, err := cutHead(candidates, kindCandidates, w.step)
	if err != nil {
		return dst, err
	}
	asked, rest, err := sketchedsgd.CutCoordinates(w.asked, body, w.plan.Candidates(), w.plan.D)
	if err != nil {
		return dst, err
	}
	if len(rest) > 0 {
		return dst, fmt.Errorf("%w: sketched: %d bytes follow the candidates", codecs.ErrCorrupt, len(rest))
	}
	w.asked, w.values = asked, w.values[:0]
	for _, i := range asked {
		w.values = append(w.values, w.memory.v[i])
	}
	w.phase = forUpdate
	return sketchedsgd.AppendValues(appendHead(dst, kindValues, w.step), w.values), nil
}

// Update sets update from the server's last message of a step, to the sum over the workers at the coordinates that it
// has and 0 elsewhere, and takes the sent values out of the residual. It returns the number of workers: Algorithms 2
// and 3 subtract the mean, and that times the learning rate. On an error, which wraps codecs.ErrCorrupt or ErrOrder,
// the worker is as before and update unspecified.
func (w *Worker) Update(update []float32, msg []byte) (workers int, err error) {
	if len(update) != w.plan.D {
		panic(fmt.Sprintf("sketched: an update of %d values for a worker of %d", len(update), w.plan.D))
	}
	if w.phase != forUpdate {
		return 0, fmt.Errorf("%w: an update before the values of step %d", ErrOrder, w.step)
	}
	k := kindUpdate
	if w.plan.small() {
		k = kindWholeUpdate
	}
	body, err := cutHead(msg, k, w.step)
	if err != nil {
		return 0, err
	}
	if len(body) < 4 || binary.LittleEndian.Uint32(body)-1 >= maxWorkers {
		return 0, fmt.Errorf("%w: sketched: it does not say of how many workers", codecs.ErrCorrupt)
	}
	workers, body = int(binary.LittleEndian.Uint32(body)), body[4:]
	if w.plan.small() {
		if err := sketchedsgd.GetValues(update, body); err != nil {
			return 0, err
		}
		clear(w.memory.v) // all has been sent; masking would leave no momentum at all
	} else if err := w.sparse(update, body, workers); err != nil {
		return 0, err
	}
	w.phase = forFirst
	w.step++
	return workers, nil
}

// sparse is Update of a tensor that is not small.
func (w *Worker) sparse(update []float32, body []byte, workers int) (err error) {
	if w.updated, body, err = sketchedsgd.CutCoordinates(w.updated, body, w.plan.K, w.plan.D); err != nil {
		return err
	}
	w.values = append(w.values[:0], make([]float32, len(w.updated))...)
	if err := sketchedsgd.GetValues(w.values, body); err != nil {
		return err
	}
	asked := w.asked
	for _, i := range w.updated { // both ascend
		for len(asked) > 0 && asked[0] < i {
			asked = asked[1:]
		}
		if len(asked) == 0 || asked[0] != i {
			return fmt.Errorf("%w: sketched: coordinate %d is updated and was not asked for", codecs.ErrCorrupt, i)
		}
	}
	clear(update)
	for j, i := range w.updated {
		update[i] = w.values[j]
		w.memory.forget(i, w.values[j], workers)
	}
	return nil
}
