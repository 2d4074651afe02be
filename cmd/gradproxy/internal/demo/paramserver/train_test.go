package paramserver

import (
	"fmt"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
)

const (
	testBatch = 16
	testSteps = 6
)

// dealer returns a worker's batches.
func dealer(set digits.Set, rank, workers int) func() ([]float32, []uint8) {
	b := train.Batches{Images: set.Len(), Size: testBatch, Rank: rank, Ranks: workers, Seed: 3}
	return func() (images []float32, labels []uint8) {
		for _, i := range b.Next() {
			images, labels = append(images, set.Image(i)...), append(labels, set.Labels[i])
		}
		return images, labels
	}
}

func testModel(rank int) *train.MLP {
	return train.New(uint64(rank)+7, digits.Pixels, 48, 32, digits.Classes)
}

// reference trains in one process with the servers' arithmetic: gradients are added in the order of the workers'
// ranks, and v = momentum v - (rate / workers) sum, w = w + v, each operation rounded to float32.
func reference(set digits.Set, workers, steps int, rate, momentum float32) *train.MLP {
	model := testModel(0)
	next := make([]func() ([]float32, []uint8), workers)
	for rank := range next {
		next[rank] = dealer(set, rank, workers)
	}
	velocity, sum := make([][]float32, len(model.Params())), make([][]float32, len(model.Params()))
	for i, p := range model.Params() {
		velocity[i], sum[i] = make([]float32, len(p.Value)), make([]float32, len(p.Value))
	}
	rescale := 1 / float32(workers)
	for range steps {
		for rank := range workers {
			images, labels := next[rank]()
			model.Step(images, labels, nil)
			for i, p := range model.Params() {
				for j, g := range p.Grad {
					if rank == 0 {
						sum[i][j] = g
					} else {
						sum[i][j] += g
					}
				}
			}
		}
		for i, p := range model.Params() {
			for j := range p.Value {
				step := float32(float32(rate*rescale) * sum[i][j])
				velocity[i][j] = float32(momentum*velocity[i][j]) - step
				p.Value[j] += velocity[i][j]
			}
		}
	}
	return model
}

// sameBits says where two models differ.
func sameBits(a, b *train.MLP) error {
	for i, p := range a.Params() {
		for j, v := range p.Value {
			if w := b.Params()[i].Value[j]; math.Float32bits(v) != math.Float32bits(w) {
				return fmt.Errorf("%s[%d] is %g, want %g", p.Name, j, v, w)
			}
		}
	}
	return nil
}

// All workers end with the weights of one process that computes the same, bit for bit, for any number of servers, with
// arrays cut over them or not, with and without momentum, with pushes and pulls in one message or two.
func TestWeightsAreThoseOfOneProcess(t *testing.T) {
	set, _ := digits.Load()
	const rate = 0.1
	for _, c := range []struct {
		workers, servers, bigArray int
		momentum                   float32
		split                      bool
	}{
		{workers: 2, servers: 1, momentum: 0.9},
		{workers: 2, servers: 2, bigArray: 1000, momentum: 0.9, split: true},
		{workers: 3, servers: 3, bigArray: 100, momentum: 0.5},
		{workers: 3, servers: 1, split: true},
		{workers: 1, servers: 1},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			want := reference(set, c.workers, testSteps, rate, c.momentum)
			var config Config
			config.Workers, config.Servers, config.BigArray = c.workers, c.servers, c.bigArray
			newJob(t, config).mustWork(t, func(w *Worker) error {
				model := testModel(w.Rank())
				steps, sent := 0, int64(0)
				err := w.Train(Training{
					Model: model, Optimizer: SGD{Rate: rate, Momentum: c.momentum}, SplitCalls: c.split, Steps: testSteps,
					Next: dealer(set, w.Rank(), c.workers),
					Report: func(s Step) error {
						if s.Number != steps || s.Sent <= sent || s.Received == 0 || !(s.Loss > 0) {
							return fmt.Errorf("reported %+v after step %d with %d bytes", s, steps, sent)
						}
						steps, sent = s.Number+1, s.Sent
						return nil
					},
				})
				if err == nil && steps != testSteps {
					err = fmt.Errorf("%d steps reported", steps)
				}
				if err == nil {
					err = sameBits(model, want)
				}
				return err
			})
		})
	}
}

// One step's traffic of the demo's model, without the arithmetic of the workers: two of them push gradients of 596,490
// weights to one server, and get the weights.
func BenchmarkPushPull(b *testing.B) {
	model := train.New(1, digits.Pixels, 1024, 512, digits.Classes)
	size := 0
	for _, p := range model.Params() {
		size += len(p.Value) * float32Len
	}
	b.SetBytes(int64(size)) // of one worker in one direction
	b.ReportAllocs()
	steps := make(chan int, 2)
	newJob(b, Config{}).mustWork(b, func(w *Worker) error {
		model := train.New(1, digits.Pixels, 1024, 512, digits.Classes)
		replica, err := NewReplica(w, model.Params(), SGD{Rate: 0.1, Momentum: 0.9, Rescale: 0.5}, false)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			n := 0
			for b.Loop() {
				n++
				steps <- n
				if err := pushAll(replica); err != nil {
					return err
				}
			}
			close(steps)
			return nil
		}
		for range steps {
			if err := pushAll(replica); err != nil {
				return err
			}
		}
		return nil
	})
}

func pushAll(r *Replica) error {
	for i := range r.params {
		r.Ready(i)
	}
	return r.Finish()
}
