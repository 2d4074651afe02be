//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A measurement is what was asked for and what came out. The JSON names are stable.
type measurement struct {
	Environment   string `json:"environment"` // of integration/env/install.sh
	Framework     string `json:"framework"`   // its version
	Parameters    int    `json:"parameters"`  // of the model, float32
	Cores         int    `json:"cores"`       // of this machine
	Ranks         int    `json:"ranks"`
	Steps         int    `json:"steps"`
	Batch         int    `json:"batch"`
	Rates         []int  `json:"rates_mbps"`
	RTTs          []int  `json:"rtts_ms"`
	Rounds        int    `json:"rounds"`
	MiB           int    `json:"mib"`
	AllReduceRate int    `json:"all_reduce_rate_mbps"`

	Training   []training  `json:"training"`
	AllReduces []allReduce `json:"all_reduces"`

	program   string // torch_job.py
	gradproxy *testbed.Gradproxy
}

// A training is one row of the training table.
type training struct {
	RateMbps  int  `json:"rate_mbps"`
	RTTms     int  `json:"rtt_ms"`
	Direct    leg  `json:"direct"`
	Lossless  leg  `json:"lossless"`
	Identical bool `json:"weights_identical"` // on every rank, the weights of the direct run
}

// A leg is a job's way over the link, directly or through the proxies.
type leg struct {
	WANBytes    uint64  `json:"wan_bytes"`    // IP bytes on the link, both directions, from the job's start to its end
	Seconds     float64 `json:"seconds"`      // from joining to the end
	StepSeconds float64 `json:"step_seconds"` // median
	Busy        busy    `json:"busy"`         // while it trains

	weights []string
}

// A busy tells how many cores were busy on average, by who kept them so.
type busy struct {
	Ranks   float64 `json:"ranks"`
	Proxies float64 `json:"proxies"`
	Link    float64 `json:"link"` // this process, which plays the link
}

func (b busy) sum() float64 { return b.Ranks + b.Proxies + b.Link }

// An allReduce is one row of the all-reduce table.
type allReduce struct {
	RateMbps      int       `json:"rate_mbps"`
	RTTms         int       `json:"rtt_ms"`
	Direct        []float64 `json:"direct_seconds"` // of each round
	Lossless      []float64 `json:"lossless_seconds"`
	DirectBytes   uint64    `json:"direct_wan_bytes"` // of a round
	LosslessBytes uint64    `json:"lossless_wan_bytes"`
	DirectBusy    busy      `json:"direct_busy"` // in the last round
	LosslessBusy  busy      `json:"lossless_busy"`
}

// link returns a link of that rate and round-trip time with a queue of one bandwidth-delay product, at least 256 KiB.
func link(mbps, rttMs int) wansim.Link {
	l := wansim.Link{Rate: int64(mbps) * 1e6 / 8, Delay: time.Duration(rttMs) * time.Millisecond / 2}
	l.Queue = max(256<<10, int(l.Rate*int64(rttMs)/1000))
	return l
}

// measure fills in the tables. dir is for the program under test.
func (m *measurement) measure(ctx context.Context, program, dir string) (err error) {
	m.program, m.Cores = program, runtime.NumCPU()
	if m.gradproxy, err = testbed.Build(ctx, dir); err != nil {
		return err
	}
	for _, rate := range m.Rates {
		for _, rtt := range m.RTTs {
			if m.Steps == 0 {
				continue
			}
			row, err := m.train(ctx, rate, rtt)
			if err != nil {
				return fmt.Errorf("%d Mbit/s, %d ms: %w", rate, rtt, err)
			}
			m.Training = append(m.Training, row)
		}
	}
	for _, rtt := range m.RTTs {
		if m.Rounds == 0 {
			continue
		}
		row, err := m.allReduce(ctx, m.AllReduceRate, rtt)
		if err != nil {
			return fmt.Errorf("all-reduce, %d Mbit/s, %d ms: %w", m.AllReduceRate, rtt, err)
		}
		m.AllReduces = append(m.AllReduces, row)
	}
	return nil
}

func (m *measurement) train(ctx context.Context, rate, rtt int) (training, error) {
	row := training{RateMbps: rate, RTTms: rtt}
	args := []string{"--steps", strconv.Itoa(m.Steps), "--batch", strconv.Itoa(m.Batch)}
	for _, way := range []struct {
		proxies bool
		leg     *leg
	}{{false, &row.Direct}, {true, &row.Lossless}} {
		err := m.onWAN(ctx, rate, rtt, way.proxies, func(w *testbed.WAN, ps testbed.Proxies) error {
			l, _, err := m.run(ctx, w, ps, m.Steps, args)
			*way.leg = l
			return err
		})
		if err != nil {
			return row, err
		}
		fmt.Fprintf(os.Stderr, "%d Mbit/s, %d ms, proxies %v: %.1f s\n", rate, rtt, way.proxies, way.leg.Seconds)
	}
	row.Identical = slices.Equal(row.Direct.weights, row.Lossless.weights)
	return row, nil
}

// allReduce lets both ways take turns, each on a WAN of its own, so that what else the machine does meets both.
func (m *measurement) allReduce(ctx context.Context, rate, rtt int) (allReduce, error) {
	row := allReduce{RateMbps: rate, RTTms: rtt}
	const timed = 3 // all-reduces of a round, of which the median counts
	args := []string{"--mode", "allreduce", "--mib", strconv.Itoa(m.MiB), "--rounds", strconv.Itoa(timed)}
	err := m.onWAN(ctx, rate, rtt, false, func(plain *testbed.WAN, _ testbed.Proxies) error {
		return m.onWAN(ctx, rate, rtt, true, func(proxied *testbed.WAN, ps testbed.Proxies) error {
			for range m.Rounds {
				l, report, err := m.run(ctx, plain, nil, timed+1, args)
				if err != nil {
					return err
				}
				row.Direct = append(row.Direct, median(report.AllReduceSeconds))
				row.DirectBytes, row.DirectBusy = l.WANBytes, l.Busy
				if l, report, err = m.run(ctx, proxied, ps, timed+1, args); err != nil {
					return err
				}
				row.Lossless = append(row.Lossless, median(report.AllReduceSeconds))
				row.LosslessBytes, row.LosslessBusy = l.WANBytes, l.Busy
			}
			return nil
		})
	})
	return row, err
}

// onWAN calls f with a WAN, and proxies at its sites if wanted, that end with f.
func (m *measurement) onWAN(ctx context.Context, rate, rtt int, proxies bool, f func(*testbed.WAN, testbed.Proxies) error) (err error) {
	w, err := testbed.NewWAN(ctx, m.Ranks, link(rate, rtt))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	var ps testbed.Proxies
	if proxies {
		if ps, err = m.gradproxy.Start(ctx, w, testbed.Config{}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, ps.Stop()) }()
	}
	return f(w, ps)
}

// run runs the job with args, which reports steps steps, and watches the processors from the first to the last.
func (m *measurement) run(ctx context.Context, w *testbed.WAN, ps testbed.Proxies, steps int, args []string) (leg, testbed.Report, error) {
	python, complete := testbed.Python(m.Environment)
	if !complete {
		return leg{}, testbed.Report{}, fmt.Errorf("no %s: run integration/env/install.sh %[1]s", m.Environment)
	}
	bytes := w.LinkBytes()
	job, err := w.Start(ctx, testbed.Job{Python: python, Program: m.program, Args: args, Ranks: m.Ranks})
	if err != nil {
		return leg{}, testbed.Report{}, err
	}
	defer job.Kill()
	var at [2]snapshot
	for i, step := range [2]int{0, steps - 1} {
		if err := job.Step(ctx, step); err != nil {
			return leg{}, testbed.Report{}, err
		}
		if at[i], err = take(job, ps); err != nil {
			return leg{}, testbed.Report{}, err
		}
	}
	results := job.Wait()
	if err := testbed.Failures(results); err != nil {
		return leg{}, testbed.Report{}, err
	}
	r := results[0].Report
	m.Framework, m.Parameters = r.Version, max(m.Parameters, r.Parameters)
	l := leg{WANBytes: w.LinkBytes() - bytes, Seconds: r.Seconds, StepSeconds: r.StepSeconds, Busy: at[1].since(at[0])}
	for _, result := range results {
		l.weights = append(l.weights, result.WeightsSHA256)
	}
	return l, r, nil
}

// A snapshot is the processor time used until a moment.
type snapshot struct {
	at                   time.Time
	ranks, proxies, link time.Duration
}

func take(job *testbed.Run, ps testbed.Proxies) (s snapshot, err error) {
	var errs [3]error
	s.at = time.Now()
	s.ranks, errs[0] = job.CPU()
	s.proxies, errs[1] = ps.CPU()
	s.link, errs[2] = testbed.CPU()
	return s, errors.Join(errs[:]...)
}

func (s snapshot) since(first snapshot) busy {
	wall := float64(s.at.Sub(first.at))
	return busy{
		Ranks:   float64(s.ranks-first.ranks) / wall,
		Proxies: float64(s.proxies-first.proxies) / wall,
		Link:    float64(s.link-first.link) / wall,
	}
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if len(x)%2 == 1 {
		return x[len(x)/2]
	}
	return (x[len(x)/2-1] + x[len(x)/2]) / 2
}
