//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A measurement is what was asked for and what came out. The JSON names are stable.
type measurement struct {
	Framework     string  `json:"framework"`  // its version
	Parameters    int     `json:"parameters"` // of the model, float32
	Workers       int     `json:"workers"`
	Hidden        string  `json:"hidden"`
	Batch         int     `json:"batch"` // images a worker and step
	LearningRate  float64 `json:"learning_rate"`
	RTTms         int     `json:"rtt_ms"`
	Rates         []int   `json:"rates_mbps"`
	Steps         int     `json:"steps"`
	Seeds         int     `json:"seeds"`
	LearningSteps int     `json:"learning_steps"`
	Push          string  `json:"push_codec"`
	Pull          string  `json:"pull_codec"`

	Times  []timing     `json:"times"`
	Learnt []learnt     `json:"learnt"`
	Sizes  []traffic    `json:"sizes"` // of each step of a training with Push and Pull
	Bars   program.Bars `json:"bars"`

	program   string // mxnet_job.py
	gradproxy *testbed.Gradproxy
}

// A timing is a training on one way over one link.
type timing struct {
	RateMbps     int     `json:"rate_mbps"`
	Way          string  `json:"way"`
	StepSeconds  float64 `json:"step_seconds"` // median of the last 20, computation included
	Speedup      float64 `json:"speedup"`      // StepSeconds of the direct run over this run's
	Push         float64 `json:"push_bytes"`   // in the tunnel, of a step, all workers together; direct: as the job sends them
	Pull         float64 `json:"pull_bytes"`
	WAN          float64 `json:"wan_bytes"`      // IP bytes on the link of a step, both directions
	SameAsDirect bool    `json:"same_as_direct"` // the final weights
}

// Learnt is how trainings on one way have ended, one a seed.
type learnt struct {
	Way       string    `json:"way"`
	Control   bool      `json:"negative_control"`
	Accuracy  []float64 `json:"accuracy"` // of images that were not trained on
	Mean      float64   `json:"mean_accuracy"`
	Points    float64   `json:"points"` // percentage points: Mean less that of the direct run
	Identical bool      `json:"replicas_identical"`
}

// Traffic is what pushes and pulls took in the tunnel, and all that was on the link.
type traffic struct {
	Push float64 `json:"push_bytes"`
	Pull float64 `json:"pull_bytes"`
	WAN  float64 `json:"wan_bytes"` // IP bytes, both directions
}

// timed is how many steps are.
const timed = 20

// A way is how the job crosses the WAN.
type way struct {
	name    string
	direct  bool
	control bool
	config  testbed.Config
}

var (
	direct   = way{name: "direct", direct: true}
	alone    = way{name: "lossless, each value by itself", config: testbed.Config{References: "0"}}
	lossless = way{name: "lossless"}
)

// bothWays is the way with loss in pushes, with feedback, and in pulls, in a closed loop.
func (m *measurement) bothWays() way {
	return way{name: fmt.Sprintf("push %s, pull %s", m.Push, m.Pull),
		config: testbed.Config{Loss: testbed.Loss{Protocol: "pslite", Gradients: m.Push, State: m.Pull}}}
}

// control is bothWays but for what is under test: pushes lose most of each gradient, and for good.
func (m *measurement) control() way {
	const codec = "3lc(s=1.9)"
	return way{name: fmt.Sprintf("push %s without feedback, pull %s", codec, m.Pull), control: true,
		config: testbed.Config{Loss: testbed.Loss{Protocol: "pslite", Gradients: codec, State: m.Pull, NoFeedback: true}}}
}

// fastMbps is the rate of the link where only what is learnt counts.
const fastMbps = 1000

// measure fills in all but the bars. dir is for the program under test.
func (m *measurement) measure(ctx context.Context, program, dir string, sizes bool) (err error) {
	m.program = program
	if m.gradproxy, err = testbed.Build(ctx, dir); err != nil {
		return err
	}
	for _, rate := range m.Rates {
		if m.Steps > 0 {
			if err := m.time(ctx, rate); err != nil {
				return err
			}
		}
	}
	if m.Seeds > 0 {
		if err := m.learn(ctx); err != nil {
			return err
		}
	}
	if sizes {
		_, err = m.train(ctx, testbed.Path(fastMbps, m.RTTms), m.bothWays(), m.LearningSteps, 1, func(_ int, t traffic) { m.Sizes = append(m.Sizes, t) }, "--sleep", "0.05", "--decay")
	}
	return err
}

// time measures all ways over one link.
func (m *measurement) time(ctx context.Context, rate int) error {
	var first trained
	for i, way := range []way{direct, alone, lossless, m.bothWays()} {
		var steps []time.Time
		var late []traffic
		run, err := m.train(ctx, testbed.Path(rate, m.RTTms), way, m.Steps, 1, func(k int, t traffic) {
			steps = append(steps, time.Now())
			late = append(late, t)
		})
		if err != nil {
			return fmt.Errorf("%s, %d Mbit/s: %w", way.name, rate, err)
		}
		if i == 0 {
			first = run
		}
		from := len(steps) - timed - 1
		t := timing{RateMbps: rate, Way: way.name, StepSeconds: median(steps[from:]), SameAsDirect: slices.Equal(run.weights, first.weights)}
		for _, x := range late[from+1:] {
			t.Push += x.Push / timed
			t.Pull += x.Pull / timed
			t.WAN += x.WAN / timed
		}
		if way.direct {
			t.Push = float64(m.Workers * run.denseBytes)
			t.Pull = t.Push
		}
		m.Times = append(m.Times, t)
		progress("%d Mbit/s, %s: %.3f s a step, %.0f bytes of pushes, %.0f of pulls", rate, way.name, t.StepSeconds, t.Push, t.Pull)
	}
	slow := &m.Times[len(m.Times)-4]
	for i := range 4 {
		t := &m.Times[len(m.Times)-4+i]
		t.Speedup = slow.StepSeconds / t.StepSeconds
	}
	return nil
}

// median returns that of the seconds between successive times.
func median(times []time.Time) float64 {
	var between []float64
	for i := range times[1:] {
		between = append(between, times[i+1].Sub(times[i]).Seconds())
	}
	slices.Sort(between)
	n := len(between)
	return (between[(n-1)/2] + between[n/2]) / 2
}

// learn trains on each way with each seed.
func (m *measurement) learn(ctx context.Context) error {
	for _, way := range []way{direct, m.bothWays(), m.control()} {
		l := learnt{Way: way.name, Control: way.control, Identical: true}
		for seed := 1; seed <= m.Seeds; seed++ {
			run, err := m.train(ctx, testbed.Path(fastMbps, 2), way, m.LearningSteps, seed, nil, "--decay")
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", way.name, seed, err)
			}
			l.Accuracy = append(l.Accuracy, run.accuracy)
			l.Mean += run.accuracy / float64(m.Seeds)
			l.Identical = l.Identical && len(slices.Compact(slices.Clone(run.weights))) == 1
			progress("%s, seed %d: accuracy %.4f", way.name, seed, run.accuracy)
		}
		l.Points = 100 * l.Mean
		m.Learnt = append(m.Learnt, l)
	}
	for i := range slices.Backward(m.Learnt) {
		m.Learnt[i].Points -= 100 * m.Learnt[0].Mean
	}
	return nil
}

// trained is how one training has ended.
type trained struct {
	weights    []string // hashes, of each worker
	accuracy   float64
	denseBytes int
}

// train runs the job. step, which may be nil, is called after each step with what it took in the tunnel.
func (m *measurement) train(ctx context.Context, link wansim.Link, w way, steps, seed int, step func(k int, t traffic), args ...string) (t trained, err error) {
	python, complete := testbed.Python("mxnet")
	if !complete {
		return t, fmt.Errorf("no mxnet: run integration/env/install.sh mxnet")
	}
	job := testbed.Job{Python: python, Program: m.program, Nodes: []testbed.Node{{Role: testbed.Scheduler}, {Role: testbed.Server}}}
	for range m.Workers {
		job.Nodes = append(job.Nodes, testbed.Node{Role: testbed.Worker, Site: 1})
	}
	job.Args = append([]string{"--steps", strconv.Itoa(steps), "--hidden", m.Hidden, "--batch", strconv.Itoa(m.Batch), "--seed", strconv.Itoa(seed),
		"--lr", strconv.FormatFloat(m.LearningRate, 'g', -1, 64)}, args...)
	way := testbed.Lossless // there are proxies
	if w.direct {
		way = testbed.Direct
	}
	err = m.gradproxy.Across(ctx, 2, link, way, w.config, func(wan *testbed.WAN, ps testbed.Proxies) error {
		run, err := wan.Start(ctx, job)
		if err != nil {
			return err
		}
		defer run.Kill()
		var last traffic
		for k := 0; step != nil && k < steps; k++ {
			for _, worker := range run.Ranks[len(job.Nodes)-m.Workers:] {
				if err := worker.Step(ctx, k); err != nil {
					return err
				}
			}
			now, err := sent(ctx, wan, ps)
			if err != nil {
				return err
			}
			step(k, traffic{now.Push - last.Push, now.Pull - last.Pull, now.WAN - last.WAN})
			last = now
		}
		results := run.Wait()
		if err := testbed.Failures(results); err != nil {
			return err
		}
		for _, r := range results {
			if r.Role == testbed.Worker {
				t.weights = append(t.weights, r.WeightsSHA256)
				t.accuracy, t.denseBytes = r.Accuracy, r.DenseBytes
				m.Framework, m.Parameters = r.Version, r.Parameters
			}
		}
		return nil
	})
	return t, err
}

// sent returns what pushes and pulls, and all, have taken so far.
func sent(ctx context.Context, w *testbed.WAN, ps testbed.Proxies) (t traffic, err error) {
	t.WAN = float64(w.LinkBytes())
	const wire = "gradproxy_wire_bytes_total"
	if t.Push, err = ps.Sum(ctx, wire, `role="gradient"`); err == nil {
		t.Pull, err = ps.Sum(ctx, wire, `role="state"`)
	}
	return t, err
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
