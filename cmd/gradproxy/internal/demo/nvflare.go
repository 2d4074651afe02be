package demo

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/gradproxy/gradproxy/parser/nvflare/nvflaresim"
)

// differences trains as NVFlare does with FedAvg and results of kind WEIGHT_DIFF: two hospitals at the near site train
// the server's model, each on images of its own, and the server at the far site fetches by how much that has changed
// the weights, and adds the mean. Each hospital gets the last model, too.
func differences(ctx context.Context, r *run) (trained, error) {
	return federation[*nvflaresim.Client]{nvflaresim.Serve, joinNVFlare, addDifferences}.train(ctx, r)
}

// joinNVFlare has a hospital do the server's tasks.
func joinNVFlare(ctx context.Context, conn net.Conn, h *hospital) error {
	return nvflaresim.Join(ctx, conn, fmt.Sprint("site-", h.number+1), h.work)
}

// addDifferences has every hospital train the model at the same time, and adds the mean of the differences.
func addDifferences(r *run, clients []*nvflaresim.Client) error {
	task := nvflaresim.Shareable{Task: nvflaresim.Train, Kind: nvflaresim.Weights}
	for _, p := range r.model(0).Params() {
		task.Arrays = append(task.Arrays, nvflaresim.Array{Name: p.Name, Values: p.Value})
	}
	for ; task.Round*localSteps < r.Steps; task.Round++ {
		results, err := assign(clients, task)
		if err != nil {
			return err
		}
		mean, err := average(results)
		if err != nil {
			return err
		}
		if err := add(task.Arrays, mean); err != nil {
			return err
		}
	}
	task.Task = nvflaresim.Validate
	_, err := assign(clients, task)
	return err
}

// assign gives all hospitals a task, and returns the arrays of their results.
func assign(clients []*nvflaresim.Client, task nvflaresim.Shareable) ([][][]float32, error) {
	return each(clients, func(c *nvflaresim.Client) ([][]float32, error) {
		result, err := c.Do(task)
		return arraysOf(result), err
	})
}

// arraysOf returns the arrays of a task or a result.
func arraysOf(x nvflaresim.Shareable) (arrays [][]float32) {
	for _, a := range x.Arrays {
		arrays = append(arrays, a.Values)
	}
	return arrays
}

// add adds differences to a model.
func add(model []nvflaresim.Array, differences [][]float32) error {
	if len(differences) != len(model) {
		return fmt.Errorf("differences of %d arrays, want %d", len(differences), len(model))
	}
	for k, a := range differences {
		if len(a) != len(model[k].Values) {
			return fmt.Errorf("array %q has %d differences, want %d", model[k].Name, len(a), len(model[k].Values))
		}
		for i, d := range a {
			model[k].Values[i] += d
		}
	}
	return nil
}

// work does a task: it trains the task's model and returns the differences, or only keeps the model.
func (h *hospital) work(task nvflaresim.Shareable) (nvflaresim.Shareable, error) {
	begin := arraysOf(task)
	if err := h.set(begin); err != nil {
		return nvflaresim.Shareable{}, err
	}
	if task.Task == nvflaresim.Validate {
		return nvflaresim.Shareable{Kind: nvflaresim.Metrics}, nil
	}
	h.fit()
	result := nvflaresim.Shareable{Kind: nvflaresim.Differences}
	for k, p := range h.model.Params() {
		d := slices.Clone(p.Value)
		for i := range d {
			d[i] -= begin[k][i]
		}
		result.Arrays = append(result.Arrays, nvflaresim.Array{Name: p.Name, Values: d})
	}
	return result, nil
}
