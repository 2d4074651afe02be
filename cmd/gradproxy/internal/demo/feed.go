package demo

import (
	"math/rand/v2"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
)

// A feed deals one rank its batches. Half of the images are moved by a pixel, as is usual where images are few: else
// the classifier knows all 1,442 by heart after three epochs, and the rest of its gradients comes in bursts, unlike the
// gradients of a job that has something to learn.
type feed struct {
	data    digits.Set
	batches train.Batches
	rng     *rand.Rand
	images  []float32
	labels  []uint8
}

// feed returns a rank's batches, the same in every run.
func (r *run) feed(rank int) *feed {
	return &feed{
		data:    r.data,
		batches: train.Batches{Images: r.data.Len(), Size: batch, Rank: rank, Ranks: ranks, Seed: r.Seed},
		rng:     rand.New(rand.NewPCG(r.Seed, uint64(rank))),
	}
}

// next returns the images of the next batch, one after another, and their labels, valid until the call after.
func (f *feed) next() (images []float32, labels []uint8) {
	f.images, f.labels = f.images[:0], f.labels[:0]
	for _, i := range f.batches.Next() {
		var right, down int
		if f.rng.IntN(2) == 0 {
			right, down = f.rng.IntN(3)-1, f.rng.IntN(3)-1
		}
		f.images = f.data.AppendMoved(f.images, i, right, down)
		f.labels = append(f.labels, f.data.Labels[i])
	}
	return f.images, f.labels
}
