package train

import "math/rand/v2"

// Batches deals the indices of a training set to ranks, as torch's DistributedSampler does: each epoch is one shuffle,
// alike on all ranks. Rank r takes its places r, r + ranks, ...; a rest that does not fill a batch on every rank is
// left out.
type Batches struct {
	Images int // in the set; at least Ranks * Size
	Size   int // images of a batch on each rank
	Rank   int
	Ranks  int
	Seed   uint64

	epoch uint64
	order []int
	next  int // place in order of the next batch
}

// Next returns the indices of this rank's next batch, valid until the call after.
func (b *Batches) Next() []int {
	all := b.Size * b.Ranks
	if b.order == nil || b.next+all > b.Images {
		b.shuffle()
	}
	places := b.order[b.next : b.next+all]
	b.next += all
	mine := places[:0:0]
	for i := b.Rank; i < all; i += b.Ranks {
		mine = append(mine, places[i])
	}
	return mine
}

func (b *Batches) shuffle() {
	rng := rand.New(rand.NewPCG(b.Seed, b.epoch))
	b.order = rng.Perm(b.Images)
	b.epoch++
	b.next = 0
}
