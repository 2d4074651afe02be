package main

import (
	"context"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs/keys"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/cluster"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

// skcompressContenders are the methods of Table 4, with its losses on KDD12. Methods that cannot code keys send them as
// they are; DGC's tenth is of the values that are not zero.
var skcompressContenders = []contender{
	{"Adam", "", alone, [...]float64{0.6885, 0.9785, 0.2109}, ""},
	{"SketchML", "skcompress", alone, [...]float64{0.6885, 0.9784, 0.2111}, ""},
	{"ZipML", "zipml(bits=16)", pairs, [...]float64{0.6887, 0.9788, 0.2111}, ""},
	{"DGC", "dgc(k=0.005)", feedback, [...]float64{0.6910, 0.9786, 0.2112}, easier},
	{"QSGD", "qsgd(bits=8,block=1048576)", pairs, [...]float64{0.6885, 0.9784, 0.2110}, ""},
	{"TernGrad", "terngrad", pairs, [...]float64{0.69314, 1.0001, 0.2224}, easier},
}

// easier says why methods that hardly converge in the paper do so here.
const easier = "mails are much easier to tell apart than clicks are to foretell, as the losses of Adam itself show, and even this converges on them"

// skcompressSize measures section 7.2: the size of messages, and of the keys in them.
func skcompressSize(ctx context.Context, l *lab, t *Table) error {
	outcomes, err := l.contest(ctx, t.Paper, skcompressContenders)
	if err != nil {
		return err
	}
	t.add(claim{label: "LR", quantity: "ratio of a message", paper: 35.58 / 3.55}.within(1.3), outcomes[0][1].Push.PairRatio())
	for _, c := range []struct {
		rows         int // that make the density
		share, bytes float64
	}{{250, 10, 1.25}, {45, 1.77, 1.27}} {
		s, err := l.supports(c.rows)
		if err != nil {
			return err
		}
		t.add(claim{label: fmt.Sprintf("keys at %v %% in the paper, %.2f %% here", c.share, 100*s.density()), quantity: "bytes a key", paper: c.bytes,
			why: "ids are by frequency here, so that rare ones are farther apart than ids drawn at random would be"}.within(1.04), s.bits(keys.DeltaBinary{})/8)
	}
	t.setup("messages are compared with pairs of a key of 32 bits and a value of 64")
	return l.setupSparse(t)
}

// skcompressAccuracy measures Table 4's losses.
func skcompressAccuracy(ctx context.Context, l *lab, t *Table) error {
	outcomes, err := l.contest(ctx, t.Paper, skcompressContenders)
	if err != nil {
		return err
	}
	t.addWays(skcompressContenders, outcomes)
	return l.setupSparse(t)
}

// skcompressDriver measures Table 5: how a step's parts change with five times the workers. The paper has seconds;
// here are the values and bytes that the seconds are spent on.
func skcompressDriver(ctx context.Context, l *lab, t *Table) error {
	m, err := l.mails()
	if err != nil {
		return err
	}
	var o [2]cluster.LinearOutcome
	workers := [...]int{10, 50}
	for i, w := range workers { // one after the other, for the memory that fifty workers take
		job := l.sparseJob(m, linearModels[0])
		job.Workers, job.Epochs = w, 1
		job.Push = skcompressContenders[1].wire()
		job.Pull = job.Push
		if o[i], err = cluster.Fit(ctx, job, nil); err != nil {
			return err
		}
	}
	per := func(i int, total int64) float64 { return float64(total) / float64(workers[i]) }
	job := l.sparseJob(m, linearModels[0])
	why := fmt.Sprintf("%d rows are a worker's part of a batch at fifty, which share few features; the paper's are some two hundred thousand",
		len(job.Train)/job.Batches/workers[1])
	t.add(claim{label: "50 workers over 10", quantity: "values that a worker encodes (encoding, s)", paper: 0.15 / 0.34, why: why}.within(1.5), per(1, o[1].Push.NonZero)/per(0, o[0].Push.NonZero))
	t.add(claim{label: "50 workers over 10", quantity: "values that the driver decodes (decoding, s)", paper: 1.9 / 1.5, why: why}.within(1.5), float64(o[1].Push.NonZero)/float64(o[0].Push.NonZero))
	t.add(claim{label: "50 workers over 10", quantity: "bytes that a worker sends (communication, s)", paper: 1.8 / 3.5, why: why}.within(1.5), per(1, o[1].Push.Bytes)/per(0, o[0].Push.Bytes))
	t.setup("logistic regression on %d mails, an epoch in batches of a tenth", m.Len())
	return nil
}

// skcompressDense measures section 7.7: gradients of a convolutional network, without keys.
func skcompressDense(ctx context.Context, l *lab, t *Table) error {
	images, err := l.images()
	if err != nil {
		return err
	}
	const workers, batch, rate = 2, 32, 0.003 // the paper's rate
	steps := l.pick(400, 60)
	names := [...]string{"", "skcompress(mode=joint)", "skcompress(mode=dense)"}
	var outcomes [len(names)]cluster.Outcome
	err = parallel(ctx, len(names), func(ctx context.Context, i int) (err error) {
		wire := cluster.Wire{}
		if names[i] != "" {
			wire = cluster.Wire{Codec: codec(names[i])}
		}
		outcomes[i], err = cluster.Train(ctx, cluster.Job{
			Model: learn.NewCNN(1, images.set.Side, [2]int{8, 16}, 10), Set: images.set, Test: images.test,
			Workers: workers, Batch: batch, Steps: steps, Rate: rate, Adam: true, Seed: 1, Push: wire, Bypass: 1000,
		})
		return err
	})
	if err != nil {
		return err
	}
	plain := outcomes[0]
	t.setup("%s, a convolutional network of three layers, %d workers with %d images each, %d steps of Adam; only pushes are coded, and only tensors of 1,000 values and more",
		images.name, workers, batch, steps)
	t.setup("uncompressed it classifies %.2f %% of the test images rightly", 100*plain.Accuracy)
	for i, name := range names[1:] {
		o := outcomes[i+1]
		pushed := o.Pushed
		t.add(claim{label: name, quantity: "ratio", paper: 21.7,
			why: "mode=dense tells signs apart, for a bit a value; only mode=joint has the size of section 7.7"}.within(1.2), pushed.Ratio())
		t.add(claim{label: name, quantity: "accuracy, points over uncompressed", paper: -1.7, why: fmt.Sprintf("the sketch delivers gradients that are too small, by different factors, and %d steps are few to make up for it", steps)}.near(2), 100*(o.Accuracy-plain.Accuracy))
	}
	return nil
}
