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
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A measurement is the settings and the results. The JSON names are stable.
type measurement struct {
	Environment  string   `json:"environment"` // of integration/env/install.sh
	Framework    string   `json:"framework"`   // its version
	Parameters   int      `json:"parameters"`  // of the model, float32
	Hidden       string   `json:"hidden"`
	Ranks        int      `json:"ranks"`
	Batch        int      `json:"batch"` // images a rank and step
	LearningRate float64  `json:"learning_rate"`
	Apart        bool     `json:"apart"` // each rank has the images of its own classes
	Seeds        int      `json:"seeds"`
	Ways         []string `json:"ways"`
	Steps        int      `json:"steps"`           // on the fast link; 0: none
	FastMbps     int      `json:"train_rate_mbps"` // of the fast link
	FastRTTms    int      `json:"train_rtt_ms"`
	Seconds      int      `json:"seconds"`   // on the slow link; 0: none
	RateMbps     int      `json:"rate_mbps"` // of the slow link
	RTTms        int      `json:"rtt_ms"`

	Variants []variant    `json:"variants"`
	Bars     program.Bars `json:"bars"`
	Holds    bool         `json:"holds"` // all bars

	program   string // torch_job.py
	dir       string
	gradproxy *testbed.Gradproxy
}

// A variant is a way across the WAN and the results of its trainings.
type variant struct {
	Name      string `json:"name"`
	Control   bool   `json:"negative_control"`
	SameSteps learnt `json:"same_steps"` // after as many steps as the direct run, on the fast link
	SameTime  learnt `json:"same_time"`  // after as many seconds as the direct run, on the slow link

	config testbed.Config
	way    testbed.Way
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
}

// defaultWays are compared by default. The last is the control.
const defaultWays = "direct 3lc 3lc+int4 3lc(s=1.9)-"

// variants returns the ways that are compared.
func variants(ways []string) (all []variant) {
	for _, name := range ways {
		v := variant{Name: name, way: testbed.Way(name), config: testbed.Way(name).Config()}
		if codec, control := strings.CutSuffix(name, "-"); control {
			v = variant{Name: codec + ", no feedback", Control: true, way: testbed.Way(codec), config: testbed.Config{Loss: testbed.Loss{Gradients: codec, NoFeedback: true}}}
		}
		all = append(all, v)
	}
	return all
}

// measure fills in the variants. dir is for the program under test and for weights.
func (m *measurement) measure(ctx context.Context, program, dir string) (err error) {
	m.program, m.dir, m.Variants = program, dir, variants(m.Ways)
	if m.gradproxy, err = testbed.Build(ctx, dir); err != nil {
		return err
	}
	for i := range m.Variants {
		v := &m.Variants[i]
		if m.Steps > 0 {
			if v.SameSteps, err = m.learn(ctx, v, testbed.Path(m.FastMbps, m.FastRTTms), "--steps", strconv.Itoa(m.Steps)); err != nil {
				return fmt.Errorf("%s, %d steps: %w", v.Name, m.Steps, err)
			}
		}
		if m.Seconds > 0 {
			if v.SameTime, err = m.learn(ctx, v, testbed.Path(m.RateMbps, m.RTTms), "--seconds", strconv.Itoa(m.Seconds)); err != nil {
				return fmt.Errorf("%s, %d seconds: %w", v.Name, m.Seconds, err)
			}
		}
	}
	return nil
}

// learn trains with each seed, for as long as the arguments say.
func (m *measurement) learn(ctx context.Context, v *variant, link wansim.Link, long ...string) (learnt, error) {
	l := learnt{Identical: true}
	bytes := 0.0
	for seed := 1; seed <= m.Seeds; seed++ {
		results, n, err := m.train(ctx, v, link, append(long, "--seed", strconv.Itoa(seed), "--test", "10000", "--save", m.dir))
		if err != nil {
			return l, err
		}
		steps, accuracy := len(results[0].EachStepSeconds), 0.0
		for _, r := range results {
			accuracy += r.Accuracy / float64(len(results))
			l.Identical = l.Identical && r.WeightsSHA256 == results[0].WeightsSHA256
			if len(r.EachStepSeconds) != steps {
				return l, errors.New("the ranks made different numbers of steps")
			}
		}
		distance, err := m.distance()
		if err != nil {
			return l, err
		}
		l.Accuracy, l.Distance = append(l.Accuracy, accuracy), append(l.Distance, distance)
		l.Steps += float64(steps) / float64(m.Seeds)
		bytes += float64(n) / float64(m.Seeds)
		m.Framework, m.Parameters = results[0].Version, results[0].Parameters
		progress("%s, seed %d: %d steps in %.1f s, %.0f bytes a step, accuracy %.4f, distance of the replicas %.2g", v.Name, seed, steps, results[0].Seconds,
			float64(n)/float64(steps), accuracy, distance)
	}
	l.Mean, l.StepBytes = mean(l.Accuracy), bytes/l.Steps
	return l, nil
}

// train runs the job on a WAN of its own, and returns the bytes on its link as well.
func (m *measurement) train(ctx context.Context, v *variant, link wansim.Link, more []string) (results []testbed.Result, bytes uint64, err error) {
	python, complete := testbed.Python(m.Environment)
	if !complete {
		return nil, 0, fmt.Errorf("no %s: run integration/env/install.sh %[1]s", m.Environment)
	}
	args := append([]string{"--decay", "--hidden", m.Hidden, "--batch", strconv.Itoa(m.Batch), "--lr", strconv.FormatFloat(m.LearningRate, 'g', -1, 64)}, more...)
	if m.Apart {
		args = append(args, "--apart")
	}
	err = m.gradproxy.Across(ctx, m.Ranks, link, v.way, v.config, func(w *testbed.WAN, _ testbed.Proxies) error {
		results, err = w.Run(ctx, testbed.Job{Python: python, Program: m.program, Args: args, Ranks: m.Ranks})
		bytes = w.LinkBytes()
		return err
	})
	return results, bytes, err
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
