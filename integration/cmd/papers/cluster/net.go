package cluster

import (
	"context"
	"math"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

// A Job is a network's training with a parameter server, as 3LC's section 2 has it: workers push gradients, each
// through its own channels; the server takes their mean, makes a step, and encodes the change of the model once for all
// workers, which add it to their copies.
type Job struct {
	Model     train.Model // which the job changes
	Set, Test data.Images

	Workers, Batch int // images of a batch on each worker
	Steps          int
	Rate, Momentum float64 // of SGD; the rate falls to a hundredth of it along a cosine
	Adam           bool    // instead of SGD; then there is no Momentum
	Seed           uint64

	Push, Pull Wire
	Bypass     int // tensors of fewer values travel as they are

	// Additions of Deep Gradient Compression (arXiv:1712.01887, section 3) to a codec with feedback.
	Early      Wire // of pushes in the first EarlySteps steps: warm-up
	EarlySteps int
	Correct    bool // momentum correction and factor masking: each worker has the momentum, of its unsent values, and the server none. It needs SGD
}

// An Outcome is the outcome of a job.
type Outcome struct {
	Loss, Accuracy float64 // of the server's model, on the test set
	// Pushed and Pulled are of tensors that do not bypass the codec: the pushes of all workers, and the pulls, each
	// encoded once for all of them.
	Pushed, Pulled Traffic
	// Step is how much each worker sends and receives in a step, on average: all tensors, in bytes.
	Step float64
}

// Coded is the traffic both ways.
func (o Outcome) Coded() (t Traffic) {
	t.Add(o.Pushed)
	t.Add(o.Pulled)
	return t
}

// Train runs a job.
func Train(ctx context.Context, j Job) (Outcome, error) {
	params := j.Model.Params()
	s, err := newServer(j, params)
	if err != nil {
		return Outcome{}, err
	}
	batches := make([]train.Batches, j.Workers)
	for w := range batches {
		batches[w] = train.Batches{Images: j.Set.Len(), Size: j.Batch, Rank: w, Ranks: j.Workers, Seed: j.Seed}
	}
	var images []float32
	var labels []uint8
	for step := range j.Steps {
		if err := ctx.Err(); err != nil {
			return Outcome{}, err
		}
		for w := range batches {
			images, labels = j.Set.Gather(images[:0], labels[:0], batches[w].Next())
			j.Model.Step(images, labels, nil)
			if err := s.push(w, step < j.EarlySteps, params); err != nil {
				return Outcome{}, err
			}
		}
		if err := s.pull(params, cosine(j.Rate, float64(step)/float64(j.Steps))); err != nil {
			return Outcome{}, err
		}
	}
	for i, p := range params {
		copy(p.Value, s.params[i].Value)
	}
	o := s.outcome(j)
	o.Loss, o.Accuracy = j.Model.Evaluate(j.Test.Pixels, j.Test.Labels)
	return o, nil
}

// cosine falls from rate at 0 to a hundredth of it at 1 (3LC, section 5.2: from 0.1 to 0.001).
func cosine(rate, at float64) float64 {
	minimum := rate / 100
	return minimum + (rate-minimum)*(1+math.Cos(math.Pi*at))/2
}

// A server has the model's parameters and the channels of each.
type server struct {
	params []train.Param // with the workers' mean as gradients
	ways   []way
	sgd    train.SGD
	adam   []learn.Adam // of each parameter; nil: sgd

	momentum float32 // at the workers; 0: none
}

// A way is a tensor's way from the workers to the server and back.
type way struct {
	push     []*Channel  // of each worker
	early    []*Channel  // likewise, in the first steps
	velocity [][]float32 // of each worker: the momentum of its unsent values
	pull     *Channel
	coded    bool
	arrived  []float32
}

func newServer(j Job, params []train.Param) (*server, error) {
	s := &server{sgd: train.SGD{Momentum: float32(j.Momentum)}}
	if j.Adam {
		s.adam = make([]learn.Adam, len(params))
	}
	if j.Correct {
		s.sgd.Momentum, s.momentum = 0, float32(j.Momentum)
	}
	for _, p := range params {
		n := len(p.Value)
		s.params = append(s.params, train.Param{Name: p.Name, Shape: p.Shape, Value: append([]float32(nil), p.Value...), Grad: make([]float32, n)})
		w := way{coded: n >= j.Bypass, arrived: make([]float32, n)}
		push, early, pull := j.Push, j.Early, j.Pull
		if !w.coded {
			push, early, pull = Wire{}, Wire{}, Wire{}
		}
		for range j.Workers {
			c, err := NewChannel(push, n)
			if err != nil {
				return nil, err
			}
			w.push = append(w.push, c)
			if c, err = NewChannel(early, n); err != nil {
				return nil, err
			}
			w.early = append(w.early, c)
			w.velocity = append(w.velocity, make([]float32, n))
		}
		var err error
		if w.pull, err = NewChannel(pull, n); err != nil {
			return nil, err
		}
		s.ways = append(s.ways, w)
	}
	return s, nil
}

// push adds a worker's gradients to the sums.
func (s *server) push(worker int, early bool, params []train.Param) error {
	for i, p := range params {
		w := &s.ways[i]
		channel := w.push[worker]
		if early {
			channel = w.early[worker]
		}
		sent, velocity := p.Grad, w.velocity[worker]
		if s.momentum > 0 {
			for k, g := range p.Grad {
				velocity[k] = float32(s.momentum*velocity[k]) + g
			}
			sent = velocity
		}
		if err := channel.Send(w.arrived, sent); err != nil {
			return err
		}
		part := 1 / float32(len(w.push))
		for k, g := range w.arrived {
			s.params[i].Grad[k] += float32(g * part)
			if g != 0 && s.momentum > 0 && !early && w.coded {
				velocity[k] = 0 // factor masking: else a value that was sent would go on by itself
			}
		}
	}
	return nil
}

// pull makes a step and gives the workers the change of the model.
func (s *server) pull(params []train.Param, rate float64) error {
	for i, p := range s.params {
		copy(s.ways[i].arrived, p.Value)
	}
	s.step(rate)
	for i, p := range s.params {
		change := s.ways[i].arrived
		for k, was := range change {
			change[k] = p.Value[k] - was
		}
		if err := s.ways[i].pull.Send(change, change); err != nil {
			return err
		}
		for k, d := range change {
			params[i].Value[k] += d
		}
		clear(p.Grad)
	}
	return nil
}

// step changes the parameters by their gradients.
func (s *server) step(rate float64) {
	if s.adam == nil {
		s.sgd.Rate = float32(rate)
		s.sgd.Step(s.params)
		return
	}
	for i, p := range s.params {
		s.adam[i].Rate = rate
		s.adam[i].Step(p.Value, p.Grad)
	}
}

func (s *server) outcome(j Job) (o Outcome) {
	var all int64 // bytes of all workers
	for _, w := range s.ways {
		var t Traffic
		for k, c := range w.push {
			t.Add(c.Traffic)
			t.Add(w.early[k].Traffic)
		}
		all += t.Bytes + int64(j.Workers)*w.pull.Traffic.Bytes
		if w.coded {
			o.Pushed.Add(t)
			o.Pulled.Add(w.pull.Traffic)
		}
	}
	o.Step = float64(all) / float64(j.Workers*j.Steps)
	return o
}
