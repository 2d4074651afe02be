//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A trainer trains a job of one kind, each time on a WAN of its own.
type trainer struct {
	gradproxy   *testbed.Gradproxy
	program     string   // the job's
	dir         string   // for weights
	environment string   // of integration/env/install.sh
	args        []string // of every training
	ranks       int      // one a site, or workers of a parameter server, all at one site
	seeds       int      // from 1
}

// Learnt is the results of the trainings of all seeds. It has no Accuracy if there were none.
type learnt struct {
	Steps     float64   `json:"steps"`              // mean of the seeds
	StepBytes float64   `json:"wan_step_bytes"`     // IP bytes on the link, both directions, mean of all steps of all seeds
	Accuracy  []float64 `json:"accuracy"`           // mean of the ranks, of 10,000 images that were not trained on
	Mean      float64   `json:"mean_accuracy"`      // of the seeds
	Points    float64   `json:"points"`             // percentage points: Mean less that of the direct run
	Identical bool      `json:"replicas_identical"` // in each run all ranks end with the same weights, by their hash
	Distance  []float64 `json:"replica_distance"`   // norm of the largest difference between two ranks over the norm of rank 0's weights
	Weights   []string  `json:"weights_sha256"`     // of rank 0, of each seed
	Seconds   []float64 `json:"seconds"`            // that rank 0 took from joining to its end, of each seed

	version    string // of the framework
	parameters int
}

// learn trains with each seed, for as long as the arguments say.
func (t *trainer) learn(ctx context.Context, v *variant, link wansim.Link, long ...string) (learnt, error) {
	l := learnt{Identical: true}
	bytes := 0.0
	for seed := 1; seed <= t.seeds; seed++ {
		results, n, err := t.train(ctx, v, link, append(slices.Clone(long), "--seed", strconv.Itoa(seed), "--test", "10000", "--save", t.dir))
		if err != nil {
			return l, err
		}
		steps, accuracy := results[0].Steps, 0.0
		for _, r := range results {
			accuracy += r.Accuracy / float64(len(results))
			l.Identical = l.Identical && r.WeightsSHA256 == results[0].WeightsSHA256
			if r.Steps != steps {
				return l, errors.New("the ranks made different numbers of steps")
			}
		}
		distance, err := t.distance()
		if err != nil {
			return l, err
		}
		l.Accuracy, l.Distance = append(l.Accuracy, accuracy), append(l.Distance, distance)
		l.Weights, l.Seconds = append(l.Weights, results[0].WeightsSHA256), append(l.Seconds, results[0].Seconds)
		l.Steps += float64(steps) / float64(t.seeds)
		bytes += float64(n) / float64(t.seeds)
		l.version, l.parameters = results[0].Version, results[0].Parameters
		progress("%s, seed %d: %d steps in %.1f s, %.0f bytes a step, accuracy %.4f, distance of the replicas %.2g", v.Name, seed, steps, results[0].Seconds,
			float64(n)/float64(steps), accuracy, distance)
	}
	l.Mean, l.StepBytes = mean(l.Accuracy), bytes/l.Steps
	return l, nil
}

// train runs the job once, and returns the results of its ranks or workers and the bytes on the link.
func (t *trainer) train(ctx context.Context, v *variant, link wansim.Link, more []string) (results []testbed.Result, bytes uint64, err error) {
	python, complete := testbed.Python(t.environment)
	if !complete {
		return nil, 0, fmt.Errorf("no %s: run integration/env/install.sh %[1]s", t.environment)
	}
	clock, err := os.MkdirTemp(t.dir, "clock-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(clock)
	job := testbed.Job{Python: python, Program: t.program, Args: slices.Concat(t.args, more, []string{"--decay", "--clock", clock}), Ranks: t.ranks}
	sites := t.ranks
	if t.environment == servers {
		job.Nodes, sites = []testbed.Node{{Role: testbed.Scheduler}, {Role: testbed.Server}}, 2
		for range t.ranks {
			job.Nodes = append(job.Nodes, testbed.Node{Role: testbed.Worker, Site: 1})
		}
	}
	err = t.gradproxy.Across(ctx, sites, link, v.way, v.config, func(w *testbed.WAN, _ testbed.Proxies) error {
		results, err = w.Run(ctx, job)
		bytes = w.LinkBytes()
		return err
	})
	results = slices.DeleteFunc(results, func(r testbed.Result) bool { return r.Role != "" && r.Role != testbed.Worker })
	return results, bytes, err
}

// servers is the environment whose jobs have a parameter server.
const servers = "mxnet"

// distance compares the weights that the ranks of the last run saved.
func (t *trainer) distance() (float64, error) {
	var weights [][]byte
	for r := range t.ranks {
		b, err := os.ReadFile(filepath.Join(t.dir, strconv.Itoa(r)+".weights"))
		if err != nil {
			return 0, err
		}
		weights = append(weights, b)
	}
	largest := 0.0
	for i, a := range weights {
		for _, b := range weights[i+1:] {
			d, err := squares(a, b)
			if err != nil {
				return 0, err
			}
			largest = max(largest, d)
		}
	}
	norm, err := squares(weights[0], make([]byte, len(weights[0])))
	return math.Sqrt(largest / norm), err
}

// squares sums up the squares of the differences of two arrays of float32.
func squares(a, b []byte) (sum float64, err error) {
	if len(a) != len(b) || len(a) == 0 || len(a)%4 != 0 {
		return 0, errors.New("the ranks saved different numbers of weights")
	}
	for ; len(a) > 0; a, b = a[4:], b[4:] {
		x, y := math.Float32frombits(binary.LittleEndian.Uint32(a)), math.Float32frombits(binary.LittleEndian.Uint32(b))
		d := float64(x) - float64(y)
		sum += d * d
	}
	return sum, nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func mean(x []float64) (sum float64) {
	for _, v := range x {
		sum += v / float64(len(x))
	}
	return sum
}
