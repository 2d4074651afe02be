package main

import (
	"context"
	"fmt"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/cluster"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/sketched"
)

// sketchedAccounting works out the compression of section 5.3's sketches, whose sizes are in its footnotes, for its two
// models.
func sketchedAccounting(_ context.Context, _ *lab, t *Table) error {
	for _, c := range []struct {
		label               string
		d, rows, columns, p int
		paper               float64
	}{
		{"transformer, 20x", 90e6, 5, 1e6, 36, 20.7},
		{"transformer, 40x", 90e6, 15, 180e3, 16, 40.9},
		{"LSTM, 40x", 73e6, 5, 180e3, 26, 40.6},
	} {
		params := sketchedsgd.Params{D: c.d, K: 100e3, P: c.p, Rows: c.rows, Columns: c.columns}
		t.add(claim{label: c.label, quantity: "compression", paper: c.paper, calibrated: true}.within(1.005), sketched.CostOf(params).Factor(c.d))
	}
	return nil
}

// A sketchSize is a compression of section 5.4's experiments, as shares of the weights: k is 0.8 % of them, as 50,000
// are of the paper's 6.5 million.
type sketchSize struct {
	p       int
	columns float64
}

const (
	sketchedHidden = 64
	sketchedK      = 0.0079
	sketchedRows   = 5
)

// Factors as the paper has them in Figure 4 and in the text on Figure 3.
var sketched9, sketched17 = sketchSize{6, 0.0333}, sketchSize{4, 0.0158}

// of returns the parameters for d weights.
func (s sketchSize) of(d int) sketchedsgd.Params {
	part := func(share float64) int { return int(share*float64(d) + 0.5) }
	return sketchedsgd.Params{K: part(sketchedK), P: s.p, Rows: sketchedRows, Columns: part(s.columns), Seed: 1}
}

// sketchedWeights is how many weights the perceptron has, biases left out.
func sketchedWeights(images pictures) int {
	return images.set.Side*images.set.Side*sketchedHidden + sketchedHidden*10
}

// sketchedJob is the training of both tables below: the batch of all workers together is the same, however many there
// are.
func sketchedJob(images pictures, workers, batch, steps int, scheme sketched.Scheme, p sketchedsgd.Params) cluster.SketchJob {
	pixels := images.set.Side * images.set.Side
	return cluster.SketchJob{
		Model: train.New(1, pixels, sketchedHidden, 10), Set: images.set, Test: images.test,
		Workers: workers, Batch: batch, Steps: steps, Rate: 0.02, Momentum: 0.9, Seed: 1, Scheme: scheme, Params: p,
	}
}

// sketchedReturn measures Figure 4's traffic: the values that return to a worker do not grow with the number of
// workers, while of a local top-k all values return in the end.
func sketchedReturn(ctx context.Context, l *lab, t *Table) error {
	images, err := l.images()
	if err != nil {
		return err
	}
	workers := []int{4, 64, 256}
	d := sketchedWeights(images)
	size := sketched9.of(d)
	steps := l.pick(10, 3)
	outcomes := make([]cluster.SketchOutcome, 2*len(workers))
	err = parallel(ctx, len(outcomes), func(ctx context.Context, i int) (err error) {
		scheme := [...]sketched.Scheme{sketched.Sketched, sketched.LocalTopK}[i%2]
		outcomes[i], err = cluster.TrainSketched(ctx, sketchedJob(images, workers[i/2], 2, steps, scheme, size))
		return err
	})
	if err != nil {
		return err
	}
	t.setup("%s, a perceptron of %d weights, k = %d, a sketch of %d x %d, P = %d; %d steps", images.name, d, size.K, size.Rows, size.Columns, size.P, steps)
	for i, w := range workers { // calibrated: the size of the sketch was chosen to make 2d over the values sent 9
		t.add(claim{label: fmt.Sprintf("sketched, %d workers", w), quantity: "compression", paper: 9, calibrated: true}.within(1.1), outcomes[2*i].Compression())
	}
	few, many, all := outcomes[1], outcomes[3], outcomes[5]
	t.add(claim{label: "local top-k, 64 workers", quantity: "values returned, over those of 4", paper: 16, band: between(16/2.5, 16),
		why: "workers choose the same coordinates more often than the paper's"}, many.Down/few.Down)
	t.add(claim{label: "local top-k, 256 workers", quantity: "compression", paper: 2,
		why: fmt.Sprintf("all workers together choose %.0f %% of the weights", 100*all.Down/float64(d))}.within(1.25), all.Compression())
	return nil
}

// sketchedAccuracy measures the statements of sections 5.4 and 6 on accuracy.
func sketchedAccuracy(ctx context.Context, l *lab, t *Table) error {
	images, err := l.images()
	if err != nil {
		return err
	}
	const all = 128 // images of a step
	steps := l.pick(1000, 200)
	nineTimes, seventeenTimes := sketched9.of(sketchedWeights(images)), sketched17.of(sketchedWeights(images))
	half := nineTimes
	half.Cells = countsketch.Float16
	runs := [...]struct {
		workers, steps int
		scheme         sketched.Scheme
		params         sketchedsgd.Params
	}{
		{4, steps, sketched.Dense, nineTimes},
		{4, steps, sketched.TrueTopK, nineTimes},
		{4, steps, sketched.Sketched, nineTimes},
		{16, steps, sketched.Sketched, nineTimes},
		{4, steps, sketched.Sketched, half},
		{4, steps, sketched.Sketched, seventeenTimes},
		{4, steps * 3 / 2, sketched.Sketched, seventeenTimes},
	}
	points := make([]float64, len(runs))
	err = parallel(ctx, len(runs), func(ctx context.Context, i int) error {
		r := runs[i]
		o, err := cluster.TrainSketched(ctx, sketchedJob(images, r.workers, all/r.workers, r.steps, r.scheme, r.params))
		points[i] = 100 * o.Accuracy
		return err
	})
	if err != nil {
		return err
	}
	dense, top, nine, sixteen, fp16, seventeen, longer := points[0], points[1], points[2], points[3], points[4], points[5], points[6]
	t.setup("%s, a perceptron of two layers, %d steps of %d images in all, momentum correction and factor masking", images.name, steps, all)
	t.setup("test accuracy: uncompressed %.2f %%, true top-k %.2f %%, sketched 9x %.2f %%", dense, top, nine)
	why := fmt.Sprintf("there are only %d steps here, of which each changes %d weights", steps, nineTimes.K)
	const quantity = "accuracy, points over "
	t.add(claim{label: "9x, 16 workers", quantity: quantity + "4 workers", paper: 0, why: why}.near(1), sixteen-nine)
	t.add(claim{label: "9x, fp16 cells", quantity: quantity + "fp32 cells", paper: 0, why: why}.near(0.5), fp16-nine)
	t.add(claim{label: "9x", quantity: quantity + "true top-k", paper: 0, why: why}.near(1), nine-top)
	t.add(claim{label: "17x", quantity: quantity + "uncompressed", paper: 92.5 - 94, why: why}.near(1.5), seventeen-dense)
	t.add(claim{label: "17x, half as many steps again", quantity: quantity + "uncompressed", paper: 0, why: why}.near(1.5), longer-dense)
	return nil
}
