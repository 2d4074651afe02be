package paramserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
)

// A Replica is one worker's copy of a model whose weights the servers keep, as a gluon.Trainer is in MXNet
// (python/mxnet/gluon/trainer.py). It is not safe for concurrent use.
type Replica struct {
	worker   *Worker
	params   []train.Param
	keys     []int       // of the parameters
	next     [][]float32 // the servers' answers, kept apart since backward passes still read the weights
	requests []*Request  // by parameter; nil before it is ready
	split    bool
}

// NewReplica gives the servers the optimizer, and worker 0's values as the weights, which it sets all workers' params
// to. With splitCalls a step has pushes and then pulls, as in loops that are written by hand, and not both in one
// message.
func NewReplica(w *Worker, params []train.Param, o SGD, splitCalls bool) (*Replica, error) {
	r := &Replica{worker: w, params: params, split: splitCalls, keys: keys(params), requests: make([]*Request, len(params))}
	for _, p := range params {
		r.next = append(r.next, make([]float32, len(p.Value)))
	}
	if err := w.SetOptimizer(o); err != nil {
		return nil, err
	}
	for key := range params {
		value := params[slices.Index(r.keys, key)].Value
		if err := w.Init(key, value); err != nil {
			return nil, err
		}
		if err := w.Pull(key, value).Wait(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// keys returns the parameters' keys: their places among all, sorted by the names that gluon gives to dense layers.
func keys(params []train.Param) []int {
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = "dense" + strings.ReplaceAll(p.Name, ".", "_")
	}
	sorted := slices.Sorted(slices.Values(names))
	k := make([]int, len(params))
	for i, name := range names {
		k[i] = slices.Index(sorted, name)
	}
	return k
}

// Ready says that a parameter's gradient is complete for this step.
func (r *Replica) Ready(param int) {
	key, gradient := r.keys[param], r.params[param].Grad
	if r.split {
		r.requests[param] = r.worker.Push(key, gradient)
	} else {
		r.requests[param] = r.worker.PushPull(key, gradient, r.next[param])
	}
}

// Finish waits for the new weights of all parameters, whose gradients are all ready, and sets them.
func (r *Replica) Finish() error {
	if i := slices.Index(r.requests, nil); i >= 0 {
		panic(fmt.Sprintf("paramserver: Finish before the gradient of %s is ready", r.params[i].Name))
	}
	if r.split {
		for i, push := range r.requests {
			if err := push.Wait(); err != nil {
				return err
			}
			r.requests[i] = r.worker.Pull(r.keys[i], r.next[i])
		}
	}
	for i, pull := range r.requests {
		if err := pull.Wait(); err != nil {
			return err
		}
		copy(r.params[i].Value, r.next[i])
	}
	clear(r.requests)
	return nil
}
