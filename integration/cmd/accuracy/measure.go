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

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A measurement is what was asked for and what came out. The JSON names are stable.
type measurement struct {
	Environment  string  `json:"environment"` // of integration/env/install.sh
	Framework    string  `json:"framework"`   // its version
	Parameters   int     `json:"parameters"`  // of the model, float32
	Ranks        int     `json:"ranks"`
	Batch        int     `json:"batch"` // images a rank and step
	LearningRate float64 `json:"learning_rate"`
	Apart        bool    `json:"apart"` // each rank has the images of its own classes
	Seeds        int     `json:"seeds"`
	Steps        int     `json:"steps"`      // of the direct run
	MostSteps    int     `json:"most_steps"` // of any run
	RateMbps     int     `json:"rate_mbps"`  // of the link whose time counts
	RTTms        int     `json:"rtt_ms"`
	TimedSteps   int     `json:"timed_steps"`     // there
	FastMbps     int     `json:"train_rate_mbps"` // of the link that is trained on
	FastRTTms    int     `json:"train_rtt_ms"`

	Seconds  float64      `json:"seconds"` // that Steps steps of the direct run take on the slow link
	Variants []variant    `json:"variants"`
	Bars     program.Bars `json:"bars"`
	Holds    bool         `json:"holds"` // all bars

	program   string // torch_job.py
	dir       string
	gradproxy *testbed.Gradproxy
}

// A variant is a way across the WAN, and what was learnt on it.
type variant struct {
	Name        string  `json:"name"`
	Control     bool    `json:"negative_control"`
	StepSeconds float64 `json:"step_seconds"`   // on the slow link: the median of the second half of the timed steps
	EarlySecs   float64 `json:"early_seconds"`  // on the slow link: the first half of the timed steps together
	TimeFor     int     `json:"time_for_steps"` // on the slow link, in the direct run's time
	SameSteps   learnt  `json:"same_steps"`     // after as many steps as the direct run
	SameTime    learnt  `json:"same_time"`      // after as many steps as there is time for

	config testbed.Config
	way    testbed.Way
}

// Learnt is how runs of some number of steps have ended, one a seed.
type learnt struct {
	Steps     int       `json:"steps"`
	Accuracy  []float64 `json:"accuracy"`           // mean of the ranks, of 10,000 images that were not trained on
	Mean      float64   `json:"mean_accuracy"`      // of the seeds
	Points    float64   `json:"points"`             // percentage points: Mean less that of the direct run
	Identical bool      `json:"replicas_identical"` // in each run all ranks end with the same weights, by their hash
	Distance  []float64 `json:"replica_distance"`   // norm of the largest difference between two ranks over the norm of rank 0's weights
}

// variants are the ways that are compared, the direct one first.
func variants() []variant {
	const phase1, both = "3lc(s=1.75)", "3lc(s=1.75)+int4"
	control := testbed.Loss{Gradients: "3lc(s=1.9)", NoFeedback: true}
	return []variant{
		{Name: string(testbed.Direct), way: testbed.Direct},
		{Name: phase1, way: phase1, config: testbed.Way(phase1).Config()},
		{Name: both, way: both, config: testbed.Way(both).Config()},
		{Name: control.Gradients + ", no feedback", Control: true, way: testbed.Way(control.Gradients), config: testbed.Config{Loss: control}},
	}
}

// measure fills in all but the bars. dir is for the program under test and for weights.
func (m *measurement) measure(ctx context.Context, program, dir string) (err error) {
	m.program, m.dir, m.Variants = program, dir, variants()
	if m.gradproxy, err = testbed.Build(ctx, dir); err != nil {
		return err
	}
	for i := range m.Variants {
		v := &m.Variants[i]
		if err := m.time(ctx, v); err != nil {
			return fmt.Errorf("%s, %d Mbit/s: %w", v.Name, m.RateMbps, err)
		}
		if i == 0 {
			m.Seconds = v.seconds(m.Steps, m.TimedSteps)
		}
		v.TimeFor = v.stepsIn(m.Seconds, m.TimedSteps)
		progress("%s: %.2f s a step, time for %d steps", v.Name, v.StepSeconds, v.TimeFor)
	}
	for i := range m.Variants {
		v := &m.Variants[i]
		for _, l := range []struct {
			to    *learnt
			steps int
		}{{&v.SameSteps, m.Steps}, {&v.SameTime, min(v.TimeFor, m.MostSteps)}} {
			if l.steps == m.Steps && l.to == &v.SameTime {
				v.SameTime = v.SameSteps
				continue
			}
			if *l.to, err = m.learn(ctx, v, l.steps); err != nil {
				return fmt.Errorf("%s, %d steps: %w", v.Name, l.steps, err)
			}
		}
	}
	return nil
}

// time measures steps on the slow link.
func (m *measurement) time(ctx context.Context, v *variant) error {
	results, err := m.train(ctx, v, testbed.Path(m.RateMbps, m.RTTms), m.TimedSteps, 1, "--test", "1")
	if err != nil {
		return err
	}
	each := results[0].EachStepSeconds
	if len(each) != m.TimedSteps {
		return fmt.Errorf("the job timed %d steps of %d", len(each), m.TimedSteps)
	}
	early := m.TimedSteps / 2
	v.StepSeconds = median(each[early:])
	for _, s := range each[:early] {
		v.EarlySecs += s
	}
	return nil
}

// seconds returns what steps steps take on the slow link, where timed were timed.
func (v *variant) seconds(steps, timed int) float64 {
	return v.EarlySecs + float64(steps-timed/2)*v.StepSeconds
}

// stepsIn returns how many steps there is time for.
func (v *variant) stepsIn(seconds float64, timed int) int {
	return timed/2 + int(math.Floor((seconds-v.EarlySecs)/v.StepSeconds+1e-9))
}

// learn trains for steps steps with each seed on the fast link.
func (m *measurement) learn(ctx context.Context, v *variant, steps int) (learnt, error) {
	l := learnt{Steps: steps, Identical: true}
	for seed := 1; seed <= m.Seeds; seed++ {
		results, err := m.train(ctx, v, testbed.Path(m.FastMbps, m.FastRTTms), steps, seed, "--test", "10000", "--save", m.dir)
		if err != nil {
			return l, err
		}
		accuracy := 0.0
		for _, r := range results {
			accuracy += r.Accuracy / float64(len(results))
			l.Identical = l.Identical && r.WeightsSHA256 == results[0].WeightsSHA256
		}
		distance, err := m.distance()
		if err != nil {
			return l, err
		}
		l.Accuracy, l.Distance = append(l.Accuracy, accuracy), append(l.Distance, distance)
		m.Framework, m.Parameters = results[0].Version, results[0].Parameters
		progress("%s, seed %d: %d steps in %.1f s, accuracy %.4f, distance of the replicas %.2g", v.Name, seed, steps, results[0].Seconds, accuracy, distance)
	}
	l.Mean = mean(l.Accuracy)
	return l, nil
}

// train runs the job on a WAN of its own.
func (m *measurement) train(ctx context.Context, v *variant, link wansim.Link, steps, seed int, more ...string) (results []testbed.Result, err error) {
	python, complete := testbed.Python(m.Environment)
	if !complete {
		return nil, fmt.Errorf("no %s: run integration/env/install.sh %[1]s", m.Environment)
	}
	args := append([]string{"--decay", "--steps", strconv.Itoa(steps), "--seed", strconv.Itoa(seed), "--batch", strconv.Itoa(m.Batch),
		"--lr", strconv.FormatFloat(m.LearningRate, 'g', -1, 64)}, more...)
	if m.Apart {
		args = append(args, "--apart")
	}
	err = m.gradproxy.Across(ctx, m.Ranks, link, v.way, v.config, func(w *testbed.WAN, _ testbed.Proxies) error {
		results, err = w.Run(ctx, testbed.Job{Python: python, Program: m.program, Args: args, Ranks: m.Ranks})
		return err
	})
	return results, err
}

// distance compares the weights that the ranks of the last run saved.
func (m *measurement) distance() (float64, error) {
	var weights [][]byte
	for r := range m.Ranks {
		b, err := os.ReadFile(filepath.Join(m.dir, strconv.Itoa(r)+".weights"))
		if err != nil {
			return 0, err
		}
		weights = append(weights, b)
	}
	most := 0.0
	for i, a := range weights {
		for _, b := range weights[i+1:] {
			d, err := squares(a, b)
			if err != nil {
				return 0, err
			}
			most = max(most, d)
		}
	}
	norm, err := squares(weights[0], make([]byte, len(weights[0])))
	return math.Sqrt(most / norm), err
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

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if len(x)%2 == 1 {
		return x[len(x)/2]
	}
	return (x[len(x)/2-1] + x[len(x)/2]) / 2
}
