package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gradproxy/gradproxy/codecs/gspar"
	"github.com/gradproxy/gradproxy/codecs/gspar/generators"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/cluster"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

// gsparDensities are "spa" in the labels of GSpar's Figures 1 and 2.
var gsparDensities = [...]float64{0.5, 0.17, 0.056}

// gsparSGD and gsparSVRG are "var" in the labels of Figures 1 and 2, by column and density.
var (
	gsparSGD  = [generators.Columns][len(gsparDensities)]float64{{1.3, 3.9, 12}, {1, 1.7, 5}, {1, 1.1, 2.4}}
	gsparSVRG = [generators.Columns][len(gsparDensities)]float64{{1.5, 4.5, 14}, {1.1, 2.1, 6.4}, {1, 1.1, 2.8}}
)

func gsparFigure1(ctx context.Context, l *lab, t *Table) error {
	return gsparFigure(ctx, l, t, false, gsparSGD)
}

func gsparFigure2(ctx context.Context, l *lab, t *Table) error {
	return gsparFigure(ctx, l, t, true, gsparSVRG)
}

// gsparFigure measures the labels of a figure: how many times as large the variance of sparsified gradients is, in each
// of the data's columns and at each density, with the recipe that section 4 prints for the data and with the one that
// gives the figures' labels.
func gsparFigure(ctx context.Context, l *lab, t *Table, svrg bool, paper [generators.Columns][len(gsparDensities)]float64) error {
	passes := l.pick(20, 2)
	t.setup("logistic regression on generated data, N = 1024, d = 2048, lambda = 1/(10N); 4 workers with 8 rows each, %d passes", passes)
	if svrg {
		t.setup("what is sparsified is grad f_n(w) - grad f_n(reference): all workers have the gradient at the reference point. The paper does not say so, but its labels do")
	}
	recipes := [...]struct {
		name string
		of   func(column int) generators.Recipe
		why  string
	}{
		{"printed", generators.Printed, "with C1 = 0.9, as section 4 prints it, values below C2 shrink by a tenth only, so that no column is sparser than another"},
		{"swapped", generators.Swapped, "the recipe is a guess at what the figures were drawn with, by their labels"},
	}
	const each = len(gsparDensities)
	runs := make([]gsparRun, len(recipes)*generators.Columns*each)
	err := parallel(ctx, len(runs), func(ctx context.Context, i int) (err error) {
		runs[i] = gsparRun{recipe: recipes[i/each/generators.Columns].of(i / each % generators.Columns), kappa: gsparDensities[i%each], svrg: svrg, passes: passes}
		return runs[i].train(ctx)
	})
	if err != nil {
		return err
	}
	for i, r := range runs { // calibrated: the codec's formula on each gradient, where UniSp's rows have the values that were sent
		recipe := recipes[i/each/generators.Columns]
		column, density := i/each%generators.Columns, i%each
		t.add(claim{label: fmt.Sprintf("%s, spa %v", r.recipe.Name, r.kappa), quantity: "var", paper: paper[column][density], why: recipe.why, calibrated: true}.within(1.3), r.gspar.mean())
	}
	for i, r := range runs[len(runs)-each:] {
		t.add(claim{label: fmt.Sprintf("UniSp, spa %v", r.kappa), quantity: "var", paper: [each]float64{2, 6, 18}[i]}.within(1.15), r.unisp.mean())
	}
	return nil
}

// A gsparRun trains once with GSpar.
type gsparRun struct {
	recipe generators.Recipe
	kappa  float64
	svrg   bool
	passes int

	gspar, unisp average // of var: by GSpar's formula on each gradient, and of the values that UniSp sent
}

// An average is a sum of numbers and how many there were.
type average struct {
	sum float64
	n   int
}

func (a *average) add(v float64) { a.sum, a.n = a.sum+v, a.n+1 }
func (a average) mean() float64  { return a.sum / float64(a.n) }

const (
	gsparWorkers = 4
	gsparBatch   = 8
)

func (r *gsparRun) train(ctx context.Context) error {
	data := r.recipe.Generate(1)
	model := &learn.Linear{Loss: learn.Logistic, Examples: &learn.Dense{Values: data.A, Width: data.D}}
	square := 0.0
	for _, v := range data.A {
		square += float64(v) * float64(v) / float64(data.N)
	}
	for _, b := range data.B {
		model.Labels = append(model.Labels, int8(b))
	}
	svrg := learn.SVRG{Model: model}
	sent, err1 := r.channels("gspar", data.D)
	uniform, err2 := r.channels("unisp", data.D)
	if err1 != nil || err2 != nil {
		return errors.Join(err1, err2)
	}
	w, g, sum, got := make([]float32, data.D), make([]float32, data.D), make([]float32, data.D), make([]float32, data.D)
	// The step that suits the data's scale, over the variance (section 4: "inversely related").
	rate := 4 / square * r.kappa
	lambda := 1 / (10 * float64(data.N))
	for pass := range r.passes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.svrg {
			svrg.Refer(w)
		}
		order := rand.New(rand.NewPCG(2, uint64(pass))).Perm(data.N)
		for len(order) >= gsparWorkers*gsparBatch {
			clear(sum)
			for i := range gsparWorkers {
				batch := order[:gsparBatch]
				order = order[gsparBatch:]
				if r.svrg {
					svrg.Difference(g, w, batch)
				} else {
					model.Gradient(g, w, batch)
				}
				if err := r.send(got, g, sent[i], uniform[i]); err != nil {
					return err
				}
				for k, v := range got {
					sum[k] += v / gsparWorkers
				}
			}
			if r.svrg {
				for k, v := range svrg.Full() {
					sum[k] += v
				}
			}
			for k, v := range sum {
				w[k] -= float32(rate) * v
			}
			learn.Decay(w, rate, lambda)
		}
	}
	return nil
}

// channels returns the workers' channels of a method, for gradients of n elements.
func (r *gsparRun) channels(method string, n int) (all [gsparWorkers]*cluster.Channel, err error) {
	for i := range all {
		if all[i], err = cluster.NewChannel(cluster.Wire{Codec: codec(fmt.Sprintf("%s(kappa=%v,seed=%d)", method, r.kappa, i+1))}, n); err != nil {
			return all, err
		}
	}
	return all, nil
}

// send sets got to a gradient as it is received, and notes the variance of both methods.
func (r *gsparRun) send(got, gradient []float32, sent, uniform *cluster.Channel) error {
	if variance := gspar.Variance(gradient, gspar.Greedy(gradient, r.kappa, 2)); !math.IsNaN(variance) {
		r.gspar.add(variance)
	}
	if err := uniform.Send(got, gradient); err != nil {
		return err
	}
	if norm := squares(gradient); norm > 0 {
		r.unisp.add(squares(got) / norm)
	}
	return sent.Send(got, gradient)
}

func squares(v []float32) (sum float64) {
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return sum
}
