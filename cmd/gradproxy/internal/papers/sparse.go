package papers

import (
	"math/rand/v2"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/papers/cluster"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/papers/data"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/train"
)

// What the sparse linear models are trained on: as the papers' click logs, rows of some hundred of some hundred thousand
// features, most of which are in few rows.
const (
	gramWords   = 2 // most words of an n-gram
	gramMails   = 1 // mails that an n-gram is in, at least
	linearSplit = 0.75
)

// sparseJob is the training of both papers on sparse linear models (SKCompress, section 7.1; FastSGD, section 4.1): Adam,
// batches of a tenth of the rows to train on, a quarter of the rows to test with.
func (l *lab) sparseJob(m *data.Mails, loss train.Loss) cluster.LinearJob {
	order := rand.New(rand.NewPCG(1, 1)).Perm(m.Len())
	cut := int(linearSplit * float64(len(order)))
	return cluster.LinearJob{
		Model: &train.Linear{Loss: loss, Examples: &m.Sparse, Labels: m.Labels},
		Train: order[:cut], Test: order[cut:],
		Workers: 4, Batches: 10, Epochs: l.pick(20, 3), Rate: 0.01, Lambda: 0.01, Seed: 1,
	}
}
