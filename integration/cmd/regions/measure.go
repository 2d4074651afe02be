//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A measurement has the settings and the results. The JSON names are stable.
type measurement struct {
	Topology     string   `json:"topology"`
	Server       string   `json:"server"`
	Hidden       string   `json:"hidden"`
	Batch        int      `json:"batch"`
	Steps        int      `json:"steps"`
	LearningRate float64  `json:"learning_rate"`
	Codecs       []string `json:"codecs"`
	Framework    string   `json:"framework"`  // its version
	Parameters   int      `json:"parameters"` // of the model, float32
	Currency     string   `json:"currency"`
	Runs         []run    `json:"runs"`

	gradproxy *testbed.Gradproxy
}

// A run is a training on one way.
type run struct {
	Way         string          `json:"way"`
	Seconds     float64         `json:"seconds"`      // of the training, from the first step's end to the last one's
	StepSeconds float64         `json:"step_seconds"` // median
	Bytes       uint64          `json:"bytes"`        // on all links, from the network's start to its end
	Cost        float64         `json:"cost"`
	Accuracy    float64         `json:"accuracy"`           // of images that were not trained on, mean of the workers in other regions than the server
	AtServer    float64         `json:"accuracy_at_server"` // of the worker in the server's region, whose weights cross no link
	Identical   bool            `json:"replicas_identical"` // the replicas of the workers in other regions
	Routes      []testbed.Route `json:"routes"`
}

// measure trains on each way. dir is for the program under test.
func (m *measurement) measure(ctx context.Context, program, dir string) (err error) {
	if m.gradproxy, err = testbed.Build(ctx, dir); err != nil {
		return err
	}
	type way struct {
		name   string
		direct bool
		config testbed.Config
	}
	ways := []way{{"direct", true, testbed.Config{}}, {"lossless", false, testbed.Config{}}}
	for _, codec := range m.Codecs {
		ways = append(ways, way{codec, false, testbed.Config{Loss: testbed.Loss{Protocol: "pslite", Gradients: codec, State: codec}}})
	}
	for _, way := range ways {
		r, err := m.train(ctx, program, way.direct, way.config)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		r.Way = way.name
		m.Runs = append(m.Runs, r)
		fmt.Fprintf(os.Stderr, "%s: %.1f s, %d bytes, %.4f %s, accuracy %.4f\n", r.Way, r.Seconds, r.Bytes, r.Cost, m.Currency, r.Accuracy)
	}
	return nil
}

// train trains once, on a network of its own.
func (m *measurement) train(ctx context.Context, program string, direct bool, config testbed.Config) (r run, err error) {
	python, complete := testbed.Python("mxnet")
	if !complete {
		return r, errors.New("no mxnet: run integration/env/install.sh mxnet")
	}
	w, err := m.gradproxy.Lay(ctx, m.Topology)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if !direct {
		proxies, err := m.gradproxy.Start(ctx, w, config)
		if err != nil {
			return r, err
		}
		defer func() {
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, proxies.Warnings())
			}
			err = errors.Join(err, proxies.Stop())
		}()
	}
	job, err := m.job(w, python, program)
	if err != nil {
		return r, err
	}
	ended, err := m.steps(ctx, w, job, &r)
	if err != nil {
		return r, err
	}
	var hashes []string
	for i, e := range ended {
		switch {
		case e.Role != testbed.Worker:
		case w.Sites[job.Nodes[i].Site].Site == m.Server:
			r.AtServer = e.Accuracy
		default:
			hashes = append(hashes, e.WeightsSHA256)
			r.Accuracy += e.Accuracy / float64(len(w.Sites)-1)
			m.Framework, m.Parameters = e.Version, e.Parameters
		}
	}
	r.Identical = len(slices.Compact(hashes)) == 1
	carried, err := w.Carried(ctx)
	if err != nil {
		return r, err
	}
	m.Currency = carried.Currency
	r.Bytes, r.Cost, r.Routes = carried.Bytes, carried.Cost, carried.Links
	return r, nil
}

// job is the training: a scheduler and a server at one site, a worker at each.
func (m *measurement) job(w *testbed.WAN, python, program string) (job testbed.Job, err error) {
	server := slices.IndexFunc(w.Sites, func(s *testbed.Site) bool { return s.Site == m.Server })
	if server < 0 {
		return job, fmt.Errorf("--server: %s has no site %s", m.Topology, m.Server)
	}
	job = testbed.Job{Python: python, Program: program, Nodes: []testbed.Node{{Role: testbed.Scheduler, Site: server}, {Role: testbed.Server, Site: server}}}
	for i := range w.Sites {
		job.Nodes = append(job.Nodes, testbed.Node{Role: testbed.Worker, Site: i})
	}
	job.Args = []string{"--steps", strconv.Itoa(m.Steps), "--hidden", m.Hidden, "--batch", strconv.Itoa(m.Batch),
		"--lr", strconv.FormatFloat(m.LearningRate, 'g', -1, 64), "--decay"}
	return job, nil
}

// steps runs the job and notes when each step has been done by all workers.
func (m *measurement) steps(ctx context.Context, w *testbed.WAN, job testbed.Job, r *run) ([]testbed.Result, error) {
	started, err := w.Start(ctx, job)
	if err != nil {
		return nil, err
	}
	defer started.Kill()
	var at []time.Time
	for k := range m.Steps {
		for i, rank := range started.Ranks {
			if job.Nodes[i].Role == testbed.Worker {
				if err := rank.Step(ctx, k); err != nil {
					return nil, err
				}
			}
		}
		at = append(at, time.Now())
	}
	var took []float64
	for i := range at[1:] {
		took = append(took, at[i+1].Sub(at[i]).Seconds())
	}
	r.Seconds = at[len(at)-1].Sub(at[0]).Seconds()
	slices.Sort(took)
	r.StepSeconds = took[len(took)/2]
	results := started.Wait()
	return results, testbed.Failures(results)
}
