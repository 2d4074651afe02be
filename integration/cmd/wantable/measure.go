//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A measurement has the settings and the results. The JSON names are stable.
type measurement struct {
	Environment   string        `json:"environment"` // of integration/env/install.sh
	Framework     string        `json:"framework"`   // its version
	Parameters    int           `json:"parameters"`  // of the model, float32
	Cores         int           `json:"cores"`       // of this machine
	Ranks         int           `json:"ranks"`
	Ways          []testbed.Way `json:"ways"`
	Steps         int           `json:"steps"`
	SlowSteps     int           `json:"slow_steps"` // in place of Steps at slowMbps and below
	Batch         int           `json:"batch"`
	Rates         []int         `json:"rates_mbps"`
	RTTs          []int         `json:"rtts_ms"`
	Rounds        int           `json:"rounds"`
	MiB           int           `json:"mib"`
	AllReduceRate int           `json:"all_reduce_rate_mbps"`
	Congestion    string        `json:"congestion"` // TCP congestion control of the tunnel; "": the default

	BulkSeconds int       `json:"bulk_seconds"`
	BulkRate    int       `json:"bulk_rate_mbps"`
	BulkRTT     int       `json:"bulk_rtt_ms"`
	BulkLosses  []float64 `json:"bulk_losses_percent"`

	Training   []leg       `json:"training"`
	AllReduces []allReduce `json:"all_reduces"`
	Bulks      []bulk      `json:"bulk"`

	program   string // torch_job.py
	gradproxy *testbed.Gradproxy
}

const slowMbps = 10

// A leg is a training on one way over one link.
type leg struct {
	RateMbps     int         `json:"rate_mbps"`
	RTTms        int         `json:"rtt_ms"`
	Way          testbed.Way `json:"way"`
	WANBytes     uint64      `json:"wan_bytes"`      // IP bytes on the link, both directions, from the job's start to its end
	StepBytes    float64     `json:"wan_step_bytes"` // of them the bytes of a step, in the later half of the steps
	Seconds      float64     `json:"seconds"`        // from joining to the end
	StepSeconds  float64     `json:"step_seconds"`   // median of the later half of the steps
	Ratio        float64     `json:"ratio"`          // StepBytes of the direct run over this run's; 0: no direct run
	Speedup      float64     `json:"speedup"`        // StepSeconds of the direct run over this run's; 0: likewise
	Identical    bool        `json:"replicas_identical"`
	SameAsDirect bool        `json:"same_as_direct"` // on every rank, the weights of the direct run
	Busy         busy        `json:"busy"`           // in the later half of the steps

	weights []string
}

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
			if err := m.train(ctx, rate, rtt); err != nil {
				return err
			}
		}
	}
	for _, rtt := range m.RTTs {
		if m.Rounds == 0 || m.MiB == 0 {
			continue
		}
		row, err := m.allReduce(ctx, m.AllReduceRate, rtt)
		if err != nil {
			return fmt.Errorf("all-reduce, %d Mbit/s, %d ms: %w", m.AllReduceRate, rtt, err)
		}
		m.AllReduces = append(m.AllReduces, row)
	}
	if m.Rounds > 0 && m.BulkSeconds > 0 {
		return m.bulkTable(ctx)
	}
	return nil
}

// train measures all ways over one link.
func (m *measurement) train(ctx context.Context, rate, rtt int) error {
	steps := m.Steps
	if rate <= slowMbps {
		steps = m.SlowSteps
	}
	args := []string{"--steps", strconv.Itoa(steps), "--batch", strconv.Itoa(m.Batch)}
	var direct *leg
	for _, way := range m.Ways {
		var l leg
		config := way.Config()
		config.Loss.Sums = "proved" // the default, where the jobs' processes are seen
		config.Congestion = m.Congestion
		err := m.gradproxy.Across(ctx, m.Ranks, testbed.Path(rate, rtt), way, config, func(w *testbed.WAN, ps testbed.Proxies) (err error) {
			l, _, err = m.run(ctx, w, ps, steps, args)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s, %d Mbit/s, %d ms: %w", way, rate, rtt, err)
		}
		l.RateMbps, l.RTTms, l.Way = rate, rtt, way
		if way == testbed.Direct {
			direct = &l
		}
		if direct != nil {
			l.Ratio, l.Speedup = direct.StepBytes/l.StepBytes, direct.StepSeconds/l.StepSeconds
			l.SameAsDirect = slices.Equal(l.weights, direct.weights)
		}
		m.Training = append(m.Training, l)
		fmt.Fprintf(os.Stderr, "%d Mbit/s, %d ms, %s: %.1f s, %.3f s a step\n", rate, rtt, way, l.Seconds, l.StepSeconds)
	}
	return nil
}

// allReduce lets both ways take turns, each on a WAN of its own, so that other load on the machine meets both.
func (m *measurement) allReduce(ctx context.Context, rate, rtt int) (allReduce, error) {
	row := allReduce{RateMbps: rate, RTTms: rtt}
	const timed = 3 // all-reduces of a round; the median counts
	args := []string{"--mode", "allreduce", "--mib", strconv.Itoa(m.MiB), "--rounds", strconv.Itoa(timed)}
	link := testbed.Path(rate, rtt)
	err := m.gradproxy.Across(ctx, m.Ranks, link, testbed.Direct, testbed.Config{}, func(plain *testbed.WAN, _ testbed.Proxies) error {
		return m.gradproxy.Across(ctx, m.Ranks, link, testbed.Lossless, testbed.Config{Congestion: m.Congestion}, func(proxied *testbed.WAN, ps testbed.Proxies) error {
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

// run runs the job with args, which reports steps steps, and watches the link and the processors in the later half.
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
	early := steps / 2
	for i, step := range [2]int{early - 1, steps - 1} {
		if err := job.Step(ctx, step); err != nil {
			return leg{}, testbed.Report{}, err
		}
		if at[i], err = take(job, w, ps); err != nil {
			return leg{}, testbed.Report{}, err
		}
	}
	results := job.Wait()
	if err := testbed.Failures(results); err != nil {
		return leg{}, testbed.Report{}, err
	}
	r := results[0].Report
	m.Framework, m.Parameters = r.Version, max(m.Parameters, r.Parameters)
	l := leg{
		WANBytes: w.LinkBytes() - bytes, StepBytes: float64(at[1].bytes-at[0].bytes) / float64(steps-early),
		Seconds: r.Seconds, Busy: at[1].since(at[0]), Identical: true,
	}
	if len(r.EachStepSeconds) == steps { // a training
		l.StepSeconds = median(r.EachStepSeconds[early:])
	}
	for _, result := range results {
		l.weights = append(l.weights, result.WeightsSHA256)
		l.Identical = l.Identical && result.WeightsSHA256 == l.weights[0]
	}
	return l, r, nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if len(x)%2 == 1 {
		return x[len(x)/2]
	}
	return (x[len(x)/2-1] + x[len(x)/2]) / 2
}
