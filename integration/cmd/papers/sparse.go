package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gradproxy/gradproxy/codecs/keys"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/cluster"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

// The sparse linear models are trained on data like the papers' click logs: rows of some hundred of some hundred
// thousand features, and most features are in few rows.
const (
	gramWords = 2 // most words of an n-gram
	gramMails = 1 // mails that an n-gram is in, at least
)

// A linearModel is one of the papers' three.
type linearModel struct {
	loss learn.Loss
	rate float64 // of Adam, the best of 0.001, 0.01 and 0.1 without compression
	none float64 // the loss of the model that always has the score 0
}

var linearModels = [...]linearModel{{learn.Logistic, 0.1, math.Ln2}, {learn.Hinge, 0.1, 1}, {learn.Squared, 0.01, 0.5}}

// sparseJob is the training of both papers on sparse linear models (SKCompress, section 7.1; FastSGD, section 4.1):
// Adam, batches of a tenth of the rows to train on, a quarter of the rows to test with.
func (l *lab) sparseJob(m *data.Mails, model linearModel) cluster.LinearJob {
	order := rand.New(rand.NewPCG(1, 1)).Perm(m.Len())
	cut := len(order) * 3 / 4
	return cluster.LinearJob{
		Model: &learn.Linear{Loss: model.loss, Examples: &m.Sparse, Labels: m.Labels},
		Train: order[:cut], Test: order[cut:],
		Workers: sparseWorkers, Batches: 10, Epochs: l.pick(10, 2), Rate: model.rate, Lambda: 0.01, Seed: 1,
	}
}

const sparseWorkers = 4

// A contender is a way of sending sparse gradients, with a paper's figures for it: the least loss of each of
// linearModels.
type contender struct {
	name   string
	codec  string // of pushes and of pulls; "": as they are, in pairs of key and value
	how    how
	losses [len(linearModels)]float64
	why    string // it may do otherwise here
}

// how says how a contender's codec is used.
type how uint8

const (
	alone    how = iota
	feedback     // its residual is sent later
	pairs        // it has values only, with their keys as they are
)

func (c contender) wire() cluster.Wire {
	if c.codec == "" {
		return cluster.Wire{Pairs: true}
	}
	return cluster.Wire{Codec: codec(c.codec), Feedback: c.how == feedback, Pairs: c.how == pairs}
}

// contest trains the three models with each contender, once for all tables of a paper. It returns the outcomes, by
// model and contender.
func (l *lab) contest(ctx context.Context, paper string, contenders []contender) ([][]cluster.LinearOutcome, error) {
	if o, done := l.contests[paper]; done {
		return o, nil
	}
	m, err := l.mails()
	if err != nil {
		return nil, err
	}
	outcomes := make([][]cluster.LinearOutcome, len(linearModels))
	for i := range outcomes {
		outcomes[i] = make([]cluster.LinearOutcome, len(contenders))
	}
	err = parallel(ctx, len(linearModels)*len(contenders), func(ctx context.Context, i int) (err error) {
		model, c := i%len(linearModels), i/len(linearModels)
		job := l.sparseJob(m, linearModels[model])
		job.Push = contenders[c].wire()
		job.Pull = job.Push
		outcomes[model][c], err = cluster.Fit(ctx, job, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.contests[paper] = outcomes
	return outcomes, nil
}

// setupSparse adds the models' data to the setup.
func (l *lab) setupSparse(t *Table) error {
	m, err := l.mails()
	if err != nil {
		return err
	}
	job := l.sparseJob(m, linearModels[0])
	t.setup("%d mails, the %d runs of 1 to %d words in them as features; %d workers, batches of a tenth, %d epochs of Adam; pulls are coded like pushes",
		m.Len(), m.Width, gramWords, job.Workers, job.Epochs)
	return nil
}

// addWays adds to t how far each contender came: the share of the first one's way down from the loss of no model, in
// the paper and here. Losses themselves cannot be compared, since the data is other.
func (t *Table) addWays(contenders []contender, outcomes [][]cluster.LinearOutcome) {
	for i, model := range linearModels {
		first := contenders[0]
		t.setup("%v: %s comes down from %.3f to %.4f here, to %.4f in the paper", model.loss, first.name, model.none, outcomes[i][0].Loss, first.losses[i])
		for j, c := range contenders[1:] {
			way := (model.none - outcomes[i][j+1].Loss) / (model.none - outcomes[i][0].Loss)
			t.add(claim{label: fmt.Sprintf("%v, %s", model.loss, c.name), quantity: "share of " + first.name + "'s way down",
				paper: (model.none - c.losses[i]) / (model.none - first.losses[i]), why: c.why}.near(0.15), way)
		}
	}
}

// supports are the keys of gradients: the features at which a gradient is not zero.
type supports struct {
	features int
	keys     [][]uint64
}

// supports returns the keys of gradients of logistic regression, each of some of the rows to train on; all of them
// together are an epoch.
func (l *lab) supports(rows int) (*supports, error) {
	m, err := l.mails()
	if err != nil {
		return nil, err
	}
	s := &supports{features: m.Width}
	train := l.sparseJob(m, linearModels[0]).Train
	for from := 0; from+rows <= len(train); from += rows {
		var k []uint64
		for _, i := range train[from : from+rows] {
			columns, _ := m.Row(i)
			for _, c := range columns {
				k = append(k, uint64(c))
			}
		}
		slices.Sort(k)
		s.keys = append(s.keys, slices.Compact(k))
	}
	return s, nil
}

// workerRows are the rows of a worker's part of a batch in sparseJob.
func (l *lab) workerRows() (int, error) {
	m, err := l.mails()
	if err != nil {
		return 0, err
	}
	job := l.sparseJob(m, linearModels[0])
	return len(job.Train) / job.Batches / job.Workers, nil
}

func (s *supports) String() string {
	return fmt.Sprintf("the keys of %d gradients of logistic regression, %.2f %% of %d features in each", len(s.keys), 100*s.density(), s.features)
}

func (s *supports) count() (n int) {
	for _, k := range s.keys {
		n += len(k)
	}
	return n
}

func (s *supports) density() float64 { return float64(s.count()) / float64(s.features*len(s.keys)) }

// bits returns the size of a key, the mean over all keys.
func (s *supports) bits(c keys.Coding) float64 {
	bits := 0.0
	for _, k := range s.keys {
		bits += keys.BitsPerKey(c, k) * float64(len(k))
	}
	return bits / float64(s.count())
}
