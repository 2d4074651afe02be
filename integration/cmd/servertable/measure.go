//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A measurement has the settings and the results. The JSON names are stable.
type measurement struct {
	Job          string   `json:"job"`        // a name of frameworks
	Framework    string   `json:"framework"`  // its version
	Parameters   int      `json:"parameters"` // of the model, float32
	Workers      int      `json:"workers"`
	Hidden       string   `json:"hidden"`
	With         string   `json:"with,omitempty"` // more arguments of the job's program
	Batch        int      `json:"batch"`          // images a worker and step
	LearningRate float64  `json:"learning_rate"`
	RTTms        int      `json:"rtt_ms"`
	Rates        []int    `json:"rates_mbps"`
	Ways         []string `json:"ways"`
	Steps        int      `json:"steps"`
	SlowSteps    int      `json:"slow_steps"` // of direct and lossless runs at slowMbps and below; 0: Steps
	FirstSeed    int      `json:"first_seed"`
	Seeds        int      `json:"seeds"`

	Runs  []training   `json:"runs"`
	Rows  []row        `json:"rows"`
	Sizes []traffic    `json:"sizes,omitempty"` // of each step of a training on the first way with loss
	Bars  program.Bars `json:"bars"`

	framework framework
	program   string // of the job
	dir       string // for the files of the jobs
	gradproxy *testbed.Gradproxy
}

// slowMbps is the rate of the link up to which SlowSteps counts.
const slowMbps = 10

// A training is one run, from its first step to its last. Its bytes are the whole run's.
type training struct {
	RateMbps     int     `json:"rate_mbps"`
	Way          string  `json:"way"`
	Seed         int     `json:"seed"`
	Steps        int     `json:"steps"`
	Whole        bool    `json:"whole"`        // Steps are all that were asked for
	StepSeconds  float64 `json:"step_seconds"` // mean of the steps after the first, computation included
	Push         float64 `json:"push_bytes"`   // in the tunnel, all workers together; direct: as the job sends them
	Pull         float64 `json:"pull_bytes"`
	WAN          float64 `json:"wan_bytes"` // IP bytes on the link, both directions
	Accuracy     float64 `json:"accuracy"`  // of images that were not trained on
	Identical    bool    `json:"workers_identical"`
	SameAsDirect bool    `json:"same_as_direct"` // the final weights are the same as of the direct run with this seed
}

// A row sums up the trainings of all seeds on one way over one link, as means.
type row struct {
	RateMbps     int     `json:"rate_mbps"`
	Way          string  `json:"way"`
	Control      bool    `json:"negative_control"`
	Steps        int     `json:"steps"`
	Whole        bool    `json:"whole"`
	Seeds        int     `json:"seeds"`
	StepSeconds  float64 `json:"step_seconds"`
	Speedup      float64 `json:"speedup"`        // StepSeconds of the direct row over this row's
	Push         float64 `json:"push_bytes"`     // of a step, over the whole run
	Pull         float64 `json:"pull_bytes"`     // likewise
	WAN          float64 `json:"wan_step_bytes"` // likewise
	Accuracy     float64 `json:"accuracy"`       // 0 where the run was not whole
	Points       float64 `json:"points"`         // percentage points: Accuracy less that of the direct row
	Identical    bool    `json:"workers_identical"`
	SameAsDirect bool    `json:"same_as_direct"`
}

// Traffic is the bytes of pushes and pulls in the tunnel, and of everything on the link.
type traffic struct {
	Push float64 `json:"push_bytes"`
	Pull float64 `json:"pull_bytes"`
	WAN  float64 `json:"wan_bytes"` // IP bytes, both directions
}

const direct, lossless, alone = "direct", "lossless", "alone"

// A way is how the job crosses the WAN.
type way struct {
	name    string
	control bool
	config  testbed.Config
}

// exact reports whether the way loses nothing, so that all its steps take as many bytes or nearly so.
func (w way) exact() bool { return w.config.Loss == testbed.Loss{} }

// parse returns the way that a word of --ways names.
func (f framework) parse(name string) way {
	switch name {
	case direct, lossless:
		return way{name: name}
	case alone:
		return way{name: name, config: testbed.Config{References: "0"}}
	}
	push, pull, feedback := strings.Cut(name, "+")
	if !feedback {
		push, pull, _ = strings.Cut(name, "-")
	}
	return way{name: name, control: !feedback,
		config: testbed.Config{Loss: testbed.Loss{Protocol: f.protocol, Gradients: push, State: pull, NoFeedback: !feedback}}}
}

// measure trains on every way, over every link, with every seed. dir is for the program under test. With sizes it
// trains once more, and looks at the bytes after each step.
func (m *measurement) measure(ctx context.Context, program, dir string, sizes bool) (err error) {
	m.program, m.dir = program, dir
	if m.gradproxy, err = testbed.Build(ctx, dir); err != nil {
		return err
	}
	for _, rate := range m.Rates {
		for seed := m.FirstSeed; seed < m.FirstSeed+m.Seeds; seed++ {
			var first []string // the weights of the direct run
			for _, name := range m.Ways {
				w := m.framework.parse(name)
				steps := m.Steps
				if rate <= slowMbps && m.SlowSteps > 0 && w.exact() {
					steps = m.SlowSteps
				}
				t, weights, err := m.train(ctx, testbed.Path(rate, m.RTTms), w, steps, seed, nil)
				if err != nil {
					return fmt.Errorf("%s, %d Mbit/s, seed %d: %w", name, rate, seed, err)
				}
				if name == direct {
					first = weights
				}
				t.RateMbps, t.SameAsDirect = rate, slices.Equal(weights, first)
				m.Runs = append(m.Runs, t)
				progress("%d Mbit/s, %s, seed %d: %d steps of %.3f s, %.0f bytes of pushes, %.0f of pulls, %.0f on the link, accuracy %.4f",
					rate, name, seed, steps, t.StepSeconds, t.Push, t.Pull, t.WAN, t.Accuracy)
			}
		}
	}
	lossy := slices.IndexFunc(m.Ways, func(name string) bool { return !m.framework.parse(name).exact() })
	if !sizes || lossy < 0 {
		return nil
	}
	_, _, err = m.train(ctx, testbed.Path(1000, m.RTTms), m.framework.parse(m.Ways[lossy]), m.Steps, 1, func(t traffic) { m.Sizes = append(m.Sizes, t) }, "--sleep", "0.05")
	return err
}

// train runs the job once and returns its figures and the hashes of the workers' weights. step, which may be nil, is
// called after each step with the bytes that the step took in the tunnel.
func (m *measurement) train(ctx context.Context, link wansim.Link, w way, steps, seed int, step func(traffic), args ...string) (t training, weights []string, err error) {
	dir, err := os.MkdirTemp(m.dir, "job-")
	if err != nil {
		return t, nil, err
	}
	job, tell, err := m.job(steps, seed, dir)
	if err != nil {
		return t, nil, err
	}
	job.Args = append(job.Args, args...)
	across := testbed.Lossless // there are proxies
	if w.name == direct {
		across = testbed.Direct
	}
	t = training{Way: w.name, Seed: seed, Steps: steps, Whole: steps == m.Steps}
	err = m.gradproxy.Across(ctx, 2, link, across, w.config, func(wan *testbed.WAN, ps testbed.Proxies) error {
		run, err := wan.Start(ctx, job)
		if err != nil {
			return err
		}
		defer run.Kill()
		var first time.Time
		var last traffic
		for k := range steps {
			for _, rank := range tell {
				if err := run.Ranks[rank].Step(ctx, k); err != nil {
					return err
				}
			}
			if k == 0 {
				first = time.Now()
			}
			if step != nil {
				now, err := m.framework.sent(ctx, wan, ps)
				if err != nil {
					return err
				}
				step(traffic{now.Push - last.Push, now.Pull - last.Pull, now.WAN - last.WAN})
				last = now
			}
		}
		t.StepSeconds = time.Since(first).Seconds() / float64(steps-1)
		results := run.Wait()
		if err := testbed.Failures(results); err != nil {
			return err
		}
		all, err := m.framework.sent(ctx, wan, ps)
		if err != nil {
			return err
		}
		t.Push, t.Pull, t.WAN = all.Push, all.Pull, all.WAN
		weights = m.take(&t, results)
		return nil
	})
	return t, weights, err
}

// take fills in the results of a training's workers, and returns the hashes of their weights.
func (m *measurement) take(t *training, results []testbed.Result) (weights []string) {
	for _, r := range results {
		if r.WeightsSHA256 == "" {
			continue
		}
		weights = append(weights, r.WeightsSHA256)
		t.Accuracy = r.Accuracy
		m.Framework, m.Parameters = r.Version, r.Parameters
		if t.Way == direct {
			t.Push, t.Pull = m.framework.itself(t.Steps, m.Workers, r.DenseBytes)
		}
	}
	t.Identical = len(slices.Compact(slices.Clone(weights))) == 1
	return weights
}

// read returns an earlier measurement; "": none.
func read(file string) (m measurement, err error) {
	if file == "" {
		return m, nil
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return m, fmt.Errorf("--continue: %w", err)
	}
	m.Job = cmp.Or(m.Job, "mxnet") // of recordings without a name
	return m, nil
}

// add puts the runs of an earlier measurement before m's, if there are any. Both must have trained the same model.
func (m *measurement) add(before measurement) error {
	if len(before.Runs) == 0 {
		return nil
	}
	if before.Job != m.Job || before.With != m.With || before.Framework != m.Framework || before.Parameters != m.Parameters || before.Workers != m.Workers || before.Batch != m.Batch ||
		before.LearningRate != m.LearningRate || before.RTTms != m.RTTms || before.Steps != m.Steps {
		return errors.New("--continue: the earlier measurement is of another job or link")
	}
	m.Runs = append(before.Runs, m.Runs...)
	for _, rate := range before.Rates {
		if !slices.Contains(m.Rates, rate) {
			m.Rates = append(m.Rates, rate)
		}
	}
	ways := slices.Clone(before.Ways)
	for _, way := range m.Ways {
		if !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	m.Ways = ways
	if len(m.Sizes) == 0 {
		m.Sizes = before.Sizes
	}
	return nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
