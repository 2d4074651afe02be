package cluster

import (
	"context"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/sketched"
)

// A SketchJob is a network's training by Algorithm 3 of Sketched-SGD, or by one of that paper's baselines: all weights
// are one vector, and biases travel as they are.
type SketchJob struct {
	Model     train.Model // which the job changes
	Set, Test data.Images

	Workers, Batch int // images of a batch on each worker
	Steps          int
	Rate           float64 // it falls to a hundredth along a cosine
	Momentum       float64 // at the workers: momentum correction and factor masking
	Seed           uint64

	Scheme sketched.Scheme
	Params sketchedsgd.Params // D is the job's
}

// A SketchOutcome is the outcome of a SketchJob.
type SketchOutcome struct {
	Loss, Accuracy float64
	D              int // weights
	// Up and Down are the values that a worker sends and receives in a step, on average, biases left out.
	Up, Down float64
}

// Compression is the paper's: 2d over the values that a worker sends and receives (section 5.3).
func (o SketchOutcome) Compression() float64 { return 2 * float64(o.D) / (o.Up + o.Down) }

// TrainSketched runs a job.
func TrainSketched(ctx context.Context, j SketchJob) (o SketchOutcome, err error) {
	weights, biases := split(j.Model.Params())
	coded, err := newSketchedPart(weights, j, j.Scheme)
	if err != nil {
		return o, err
	}
	plain, err := newSketchedPart(biases, j, sketched.Dense)
	if err != nil {
		return o, err
	}
	batches := make([]train.Batches, j.Workers)
	for w := range batches {
		batches[w] = train.Batches{Images: j.Set.Len(), Size: j.Batch, Rank: w, Ranks: j.Workers, Seed: j.Seed}
	}
	o.D = len(coded.update)
	var images []float32
	var labels []uint8
	for step := range j.Steps {
		if err := ctx.Err(); err != nil {
			return o, err
		}
		for w := range batches {
			images, labels = j.Set.Gather(images[:0], labels[:0], batches[w].Next())
			j.Model.Step(images, labels, nil)
			coded.gather(w)
			plain.gather(w)
		}
		rate := cosine(j.Rate, float64(step)/float64(j.Steps)) / float64(j.Workers)
		cost, err := coded.step(float32(rate))
		if err != nil {
			return o, err
		}
		if _, err := plain.step(float32(rate)); err != nil {
			return o, err
		}
		o.Up += float64(cost.Up) / float64(j.Steps)
		o.Down += float64(cost.Down) / float64(j.Steps)
	}
	o.Loss, o.Accuracy = j.Model.Evaluate(j.Test.Pixels, j.Test.Labels)
	return o, nil
}

func split(params []train.Param) (weights, biases []train.Param) {
	for _, p := range params {
		if strings.HasSuffix(p.Name, ".bias") {
			biases = append(biases, p)
		} else {
			weights = append(weights, p)
		}
	}
	return weights, biases
}

// A sketchedPart is some of a model's parameters as one vector.
type sketchedPart struct {
	params     []train.Param
	simulation *sketched.Simulation
	gradients  [][]float32 // of each worker
	update     []float32
}

func newSketchedPart(params []train.Param, j SketchJob, scheme sketched.Scheme) (*sketchedPart, error) {
	p := &sketchedPart{params: params, gradients: make([][]float32, j.Workers)}
	d := 0
	for _, param := range params {
		d += len(param.Value)
	}
	p.update = make([]float32, d)
	for w := range p.gradients {
		p.gradients[w] = make([]float32, d)
	}
	shared := j.Params
	if shared.D = d; scheme == sketched.Dense {
		shared.K, shared.Columns = 1, 1 // of no use where all is sent
	}
	plan, err := sketched.NewPlan(shared, 0)
	if err != nil {
		return nil, err
	}
	p.simulation, err = sketched.NewSimulation(plan, j.Workers, scheme, sketched.Memory{Momentum: float32(j.Momentum), Masking: true})
	return p, err
}

// gather takes the model's gradients as a worker's.
func (p *sketchedPart) gather(worker int) {
	at := 0
	for _, param := range p.params {
		at += copy(p.gradients[worker][at:], param.Grad)
	}
}

// step subtracts the update that all workers receive, times rate, from the parameters.
func (p *sketchedPart) step(rate float32) (sketched.Cost, error) {
	traffic, err := p.simulation.Step(p.update, p.gradients)
	if err != nil {
		return traffic.Cost, err
	}
	at := 0
	for _, param := range p.params {
		for i := range param.Value {
			param.Value[i] -= float32(rate * p.update[at+i])
		}
		at += len(param.Value)
	}
	return traffic.Cost, nil
}
