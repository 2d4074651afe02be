package cluster

import (
	"context"
	"math/rand/v2"

	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

// A LinearJob is a linear model's training with a driver, as SKCompress's section 7.1 has it: the driver decodes the
// workers' gradients, sums them up, encodes the sum once and broadcasts it; everyone makes the same step of Adam.
type LinearJob struct {
	Model       *learn.Linear
	Train, Test []int // rows

	Workers int
	Batches int // of an epoch, of all workers together
	Epochs  int
	Rate    float64
	Lambda  float64 // of the regularization, which none sends
	Seed    uint64

	Push, Pull Wire
}

// A LinearOutcome is the outcome of a LinearJob.
type LinearOutcome struct {
	Loss, Accuracy float64 // on the test rows; the least loss of all epochs' ends
	Push, Pull     Traffic // of all workers; of the sums, which the driver encodes once
}

// Fit runs a job. It calls each, if not nil, with every gradient that a worker is about to send.
func Fit(ctx context.Context, j LinearJob, each func(gradient []float32)) (LinearOutcome, error) {
	n := j.Model.Features()
	w, gradient, sum := make([]float32, n), make([]float32, n), make([]float32, n)
	push := make([]*Channel, j.Workers)
	for i := range push {
		var err error
		if push[i], err = NewChannel(j.Push, n); err != nil {
			return LinearOutcome{}, err
		}
	}
	pull, err := NewChannel(j.Pull, n)
	if err != nil {
		return LinearOutcome{}, err
	}
	adam := learn.Adam{Rate: j.Rate}
	best := LinearOutcome{}
	for epoch := range j.Epochs {
		order := rand.New(rand.NewPCG(j.Seed, uint64(epoch))).Perm(len(j.Train))
		for b := range j.Batches {
			if err := ctx.Err(); err != nil {
				return LinearOutcome{}, err
			}
			batch := part(order, b, j.Batches)
			clear(sum)
			for i := range push {
				rows := pick(j.Train, part(batch, i, j.Workers))
				j.Model.Gradient(gradient, w, rows)
				if each != nil {
					each(gradient)
				}
				if err := push[i].Send(gradient, gradient); err != nil {
					return LinearOutcome{}, err
				}
				share := float32(len(rows)) / float32(len(batch))
				for k, g := range gradient {
					if g != 0 {
						sum[k] += float32(g * share)
					}
				}
			}
			if err := pull.Send(sum, sum); err != nil {
				return LinearOutcome{}, err
			}
			adam.Step(w, sum)
			learn.Decay(w, j.Rate, j.Lambda)
		}
		loss, accuracy := j.Model.Evaluate(w, j.Test)
		if epoch == 0 || loss < best.Loss {
			best.Loss, best.Accuracy = loss, accuracy
		}
	}
	for _, c := range push {
		best.Push.Add(c.Traffic)
	}
	best.Pull = pull.Traffic
	return best, nil
}

// part returns the i-th of n parts of list, of lengths as alike as they can be.
func part(list []int, i, n int) []int { return list[i*len(list)/n : (i+1)*len(list)/n] }

func pick(from, at []int) []int {
	rows := make([]int, len(at))
	for i, a := range at {
		rows[i] = from[a]
	}
	return rows
}
