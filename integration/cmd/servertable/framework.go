//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A framework trains the models of a measurement.
type framework struct {
	name     string // of its environment, and of its job's program
	text     string // a description
	protocol string // of policies
	federal  bool   // whole models travel, whose role is state in both directions, and one process reports
	args     []string
}

// frameworks lists the values of --framework.
var frameworks = map[string]framework{
	"mxnet":      {name: "mxnet", text: "MXNet, dist_sync", protocol: "pslite", args: []string{"--decay"}},
	"tensorflow": {name: "tensorflow", text: "TensorFlow, SyncReplicasOptimizer", protocol: "tensorflow", args: []string{"--mode", "sync", "--decay"}},
	"flower":     {name: "flower", text: "Flower, start_server and start_client", protocol: "flower", federal: true, args: []string{"--mode", "join"}},
}

// frameworkOf returns the framework of a name.
func frameworkOf(name string) (framework, error) {
	f, ok := frameworks[name]
	if !ok {
		return f, fmt.Errorf("--framework %s: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(frameworks)), ", "))
	}
	return f, nil
}

// program is the path of the job's program in the checkout.
func (f framework) program() string { return "integration/testdata/" + f.name + "_job.py" }

// nodes are the processes of a job, and how many of them train: the last.
func (f framework) nodes(workers int) (nodes []testbed.Node, trains int) {
	at := func(site int, role string, n int) {
		nodes = append(nodes, slices.Repeat([]testbed.Node{{Role: role, Site: site}}, n)...)
	}
	switch f.name {
	case "flower":
		at(1, "client", workers)
		at(0, "server", 1)
		return nodes, 1
	case "tensorflow":
		at(0, "ps", 1)
	default:
		at(0, testbed.Scheduler, 1)
		at(0, testbed.Server, 1)
	}
	at(1, testbed.Worker, workers)
	return nodes, workers
}

// job is a training with the settings of m.
func (m *measurement) job(steps, seed int, dir string) (job testbed.Job, trains int, err error) {
	f := m.framework
	python, complete := testbed.Python(f.name)
	if !complete {
		return job, 0, fmt.Errorf("no %s: run integration/env/install.sh %[1]s", f.name)
	}
	job = testbed.Job{Python: python, Program: m.program}
	job.Nodes, trains = f.nodes(m.Workers)
	job.Args = []string{"--hidden", m.Hidden, "--batch", strconv.Itoa(m.Batch), "--seed", strconv.Itoa(seed),
		"--lr", strconv.FormatFloat(m.LearningRate, 'g', -1, 64), "--test", "5000"}
	count := "--steps"
	if f.federal {
		count = "--rounds"
	}
	job.Args = append(append(job.Args, count, strconv.Itoa(steps)), f.args...)
	if f.name != "mxnet" {
		job.Args = append(job.Args, "--end", filepath.Join(dir, "end"))
	}
	return job, trains, nil
}

// sent returns the bytes of pushes, of pulls and of everything so far. The second proxy is that of the workers.
func (f framework) sent(ctx context.Context, w *testbed.WAN, ps testbed.Proxies) (t traffic, err error) {
	t.WAN = float64(w.LinkBytes())
	if len(ps) == 0 {
		return t, nil
	}
	const wire = "gradproxy_wire_bytes_total"
	if f.federal {
		if t.Push, err = ps[1:].Sum(ctx, wire, `role="state"`); err == nil {
			t.Pull, err = ps[:1].Sum(ctx, wire, `role="state"`)
		}
		return t, err
	}
	if t.Push, err = ps.Sum(ctx, wire, `role="gradient"`); err == nil {
		t.Pull, err = ps.Sum(ctx, wire, `role="state"`)
	}
	return t, err
}

// itself returns the bytes of pushes and pulls as the job sends them, in steps of size bytes for each worker. A federated round also has the clients judge its model.
func (f framework) itself(steps, workers, size int) (push, pull float64) {
	push = float64(steps * workers * size)
	if f.federal {
		return push, 2 * push
	}
	return push, push
}
