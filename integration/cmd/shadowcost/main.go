//go:build linux

// Command shadowcost decides whether shadow mode keeps the step time of a real job within 3 %: DistributedDataParallel
// of PyTorch with a rank at each of two sites, over a link of 1 Gbit/s and 1 ms, where steps are short and the
// processors busy. While one job runs, both proxies are told by turns to try three codecs, and none. Neighbouring
// stretches of steps, one with trials and one without, make a pair, and the mean step of the one is compared with that
// of the other, so that whatever else the machine does meets both alike. The command ends as soon as the bounds of the
// change lie within 3 % or beyond, or at the limit. It exits with 0 only for "yes". Run it from the root of the
// checkout, as root:
//
//	go run ./integration/cmd/shadowcost
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/require/paired"
	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A measurement names the job, and how long it is measured.
type measurement struct {
	environment string
	hidden      string
	batch       int
	candidates  string // as a YAML list
	stretch     time.Duration
	settle      time.Duration // between a change and its stretch
	limit       time.Duration // of all stretches
}

func main() {
	m := measurement{}
	flag.StringVar(&m.environment, "environment", "torch215", "PyTorch: torch215 or torch113")
	flag.StringVar(&m.hidden, "hidden", "512,256", "widths of the MLP's hidden layers")
	flag.IntVar(&m.batch, "batch", 64, "images a rank and step")
	flag.StringVar(&m.candidates, "candidates", `["3lc(s=1.75)", int8, int4]`, "codecs that are tried, as a YAML list")
	flag.DurationVar(&m.stretch, "stretch", 1500*time.Millisecond, "length of a stretch")
	flag.DurationVar(&m.settle, "settle", 500*time.Millisecond, "how long to wait after a change")
	flag.DurationVar(&m.limit, "limit", 3*time.Minute, "how long to try for a verdict")
	flag.Parse()
	program.Main("shadowcost", m.run)
}

const (
	tolerance = 0.03 // of the step time
	minPairs  = 16   // before the first verdict
	warm      = 100  // steps before the first stretch: the tensors earn trust
)

func (m *measurement) run(ctx context.Context) error {
	return program.With("integration/testdata/torch_job.py", func(path, dir string) error {
		python, complete := testbed.Python(m.environment)
		if !complete {
			return fmt.Errorf("%s is missing: run integration/env/install.sh %[1]s", m.environment)
		}
		gradproxy, err := testbed.Build(ctx, dir)
		if err != nil {
			return err
		}
		without := testbed.Config{Loss: testbed.Loss{Gradients: "lossless"}}
		with := without
		with.Shadow = m.candidates
		link := wansim.Link{Rate: 1e9 / 8, Delay: 500 * time.Microsecond, Queue: 1 << 20}
		return gradproxy.Across(ctx, 2, link, testbed.Lossless, without, func(w *testbed.WAN, ps testbed.Proxies) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel() // ends the job
			run, err := w.Start(ctx, testbed.Job{Python: python, Program: path, Ranks: 2, Env: []string{"OMP_NUM_THREADS=1"},
				Args: []string{"--steps", strconv.Itoa(1 << 30), "--hidden", m.hidden, "--batch", strconv.Itoa(m.batch), "--bucket-mb", "1"}})
			if err != nil {
				return err
			}
			t := trial{measurement: m, run: run, turn: func(shadow bool) error {
				c := without
				if shadow {
					c = with
				}
				return gradproxy.Reload(ctx, w, ps, c)
			}, spent: func() (float64, error) { return ps.Sum(ctx, "gradproxy_shadow_core_seconds_total") }}
			return t.decide(ctx)
		})
	})
}

// A trial is a measurement under way.
type trial struct {
	*measurement
	run   *testbed.Run
	turn  func(shadow bool) error
	spent func() (coreSeconds float64, err error) // by the trials of both proxies so far
	step  int                                     // that has ended last

	seconds, cores float64 // of all stretches with trials, and of a core that trials took in them
}

// decide measures until there is a verdict, and prints it.
func (t *trial) decide(ctx context.Context) error {
	t.step = warm
	if err := t.run.Step(ctx, t.step); err != nil {
		return err
	}
	var pairs []paired.Pair
	for began := time.Now(); ; {
		var p paired.Pair
		for i := range 2 {
			shadow := (len(pairs)+i)%2 == 1 // which of the two comes first changes from pair to pair
			mean, err := t.stretchOf(ctx, shadow)
			if err != nil {
				return err
			}
			if shadow {
				p.With = mean
			} else {
				p.Without = mean
			}
		}
		pairs = append(pairs, p)
		last := time.Since(began) > t.limit
		if len(pairs) < minPairs && !last {
			continue
		}
		deviations := paired.NormalSoon
		if last {
			deviations = paired.Normal95
		}
		c, err := paired.Compare(pairs, deviations)
		switch {
		case err != nil && last:
			return err
		case err != nil || !last && c.High >= tolerance && c.Low <= tolerance:
			continue
		}
		fmt.Printf("a step takes %.3f ms without shadow mode, and with it %v\ntrials took %.4f of a core, at both sites together\n", 1e3*c.Without, c, t.cores/t.seconds)
		if c.High >= tolerance {
			return fmt.Errorf("it is not shown that a step takes less than %.0f %% longer", 100*tolerance)
		}
		fmt.Printf("within %.0f %%: yes\n", 100*tolerance)
		return nil
	}
}

// stretchOf returns the mean time of a step, with trials or without.
func (t *trial) stretchOf(ctx context.Context, shadow bool) (mean float64, err error) {
	if err := t.turn(shadow); err != nil {
		return 0, err
	}
	if _, _, err := t.steps(ctx, t.settle); err != nil {
		return 0, err
	}
	before, err := t.spent()
	if err != nil {
		return 0, err
	}
	n, took, err := t.steps(ctx, t.stretch)
	if err != nil {
		return 0, err
	}
	after, err := t.spent()
	if err != nil {
		return 0, err
	}
	if shadow {
		if after <= before {
			return 0, errors.New("nothing was tried in a stretch")
		}
		t.seconds, t.cores = t.seconds+took.Seconds(), t.cores+after-before
	} else if after != before {
		return 0, fmt.Errorf("trials took %v s of a core in a stretch without them", after-before)
	}
	return took.Seconds() / float64(n), nil
}

// steps lets whole steps pass for so long at least, and returns their number and time.
func (t *trial) steps(ctx context.Context, d time.Duration) (n int, took time.Duration, err error) {
	if err := t.next(ctx); err != nil {
		return 0, 0, err
	}
	for began := time.Now(); took < d; took = time.Since(began) {
		if err := t.next(ctx); err != nil {
			return 0, 0, err
		}
		n++
	}
	return n, took, nil
}

// next waits for the end of the next step of the first rank.
func (t *trial) next(ctx context.Context) error {
	t.step++
	return t.run.Ranks[0].Step(ctx, t.step)
}
