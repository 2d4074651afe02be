package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser/nvflare/nvflaresim"
)

// differences trains as NVFlare does with FedAvg and results of kind WEIGHT_DIFF: two hospitals at the near site train the server's model, each on images of its own, and
// the server at the far site fetches by how much that has changed the weights, and adds the mean. Each hospital gets the last model, too.
func differences(ctx context.Context, r *run) (trained, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l, err := listen(ctx)
	if err != nil {
		return trained{}, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	across, err := r.path.Forward(l.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return trained{}, err
	}
	j := &nvflareJob{run: r}
	begin := time.Now()
	var all sync.WaitGroup
	hospitals, clients := r.hospitals(), make([]*nvflaresim.Client, ranks)
	for i, h := range hospitals {
		all.Go(func() {
			if err := j.join(ctx, across.String(), h); err != nil {
				cancel(fmt.Errorf("hospital %d: %w", i, err))
			}
		})
		if clients[i], err = j.accept(ctx, l); err != nil {
			cancel(err)
			all.Wait()
			return trained{}, context.Cause(ctx)
		}
	}
	if err := j.train(clients); err != nil {
		cancel(fmt.Errorf("server: %w", err))
	}
	seconds := time.Since(begin).Seconds()
	all.Wait()
	if ctx.Err() != nil {
		return trained{}, context.Cause(ctx)
	}
	return trainedBy(hospitals, j.sent.Load(), seconds), nil
}

// An nvflareJob is a training.
type nvflareJob struct {
	run  *run
	sent atomic.Int64 // bytes that all have written
}

// accept returns the client that joins next. Its connection is closed when ctx is done.
func (j *nvflareJob) accept(ctx context.Context, l net.Listener) (*nvflaresim.Client, error) {
	conn, err := l.Accept()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return nvflaresim.Accept(&countedConn{conn, &j.sent})
}

// join has a hospital join the server.
func (j *nvflareJob) join(ctx context.Context, addr string, h *hospital) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return nvflaresim.Join(ctx, &countedConn{conn, &j.sent}, fmt.Sprint("site-", h.number+1), h.work)
}

// train makes rounds until all steps are done: every hospital trains the model at the same time, and the server adds the mean of the differences, in the hospitals' order.
func (j *nvflareJob) train(clients []*nvflaresim.Client) error {
	task := nvflaresim.Shareable{Task: nvflaresim.Train, Kind: nvflaresim.Weights}
	for _, p := range j.run.model(0).Params() {
		task.Arrays = append(task.Arrays, nvflaresim.Array{Name: p.Name, Values: p.Value})
	}
	for ; task.Round*localSteps < j.run.Steps; task.Round++ {
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
	if _, err := assign(clients, task); err != nil {
		return err
	}
	for _, c := range clients {
		if err := c.End(); err != nil {
			return err
		}
	}
	return nil
}

// assign gives all hospitals a task at the same time, and returns the arrays of their results.
func assign(clients []*nvflaresim.Client, task nvflaresim.Shareable) ([][][]float32, error) {
	results, errs := make([][][]float32, len(clients)), make([]error, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			result, err := c.Do(task)
			results[i], errs[i] = arraysOf(result), err
		})
	}
	all.Wait()
	return results, errors.Join(errs...)
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
