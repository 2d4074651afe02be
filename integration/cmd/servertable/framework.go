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
	name     string   // of its environment, and of its job's program
	text     string   // a description
	protocol string   // of policies
	federal  bool     // clients train for a round at a time, and one process reports
	judged   bool     // clients also get the model of each round to judge it
	roles    []string // of the arrays that travel, where they are of the same roles in both directions; nil: pushes are gradients, and pulls state
	args     []string
}

// frameworks lists the values of --framework.
var frameworks = map[string]framework{
	"mxnet":      {name: "mxnet", text: "MXNet, dist_sync", protocol: "pslite", args: []string{"--decay"}},
	"tensorflow": {name: "tensorflow", text: "TensorFlow, SyncReplicasOptimizer", protocol: "tensorflow", args: []string{"--mode", "sync", "--decay"}},
	"flower": {name: "flower", text: "Flower, start_server and start_client", protocol: "flower", federal: true, judged: true, roles: []string{"state"},
		args: []string{"--mode", "join"}},
	"nvflare": {name: "nvflare", text: "NVFlare, FedAvg", protocol: "nvflare", federal: true, roles: []string{"state", "gradient", "exact"},
		args: []string{"--timeout", "7200"}},
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

// place puts the processes of a job at the two sites, and returns the ranks that tell their steps.
func (f framework) place(job *testbed.Job, workers int) (tell []int) {
	at := func(site int, role string, n int) {
		job.Nodes = append(job.Nodes, slices.Repeat([]testbed.Node{{Role: role, Site: site}}, n)...)
	}
	switch f.name {
	case "nvflare": // the server, and all clients
		job.Ranks = 2
		return []int{0}
	case "flower":
		at(1, "client", workers)
		at(0, "server", 1)
		return []int{workers}
	case "tensorflow":
		at(0, "ps", 1)
	default:
		at(0, testbed.Scheduler, 1)
		at(0, testbed.Server, 1)
	}
	first := len(job.Nodes)
	at(1, testbed.Worker, workers)
	for rank := first; rank < len(job.Nodes); rank++ {
		tell = append(tell, rank)
	}
	return tell
}

// job is a training with the settings of m. It also returns the ranks that tell their steps.
func (m *measurement) job(steps, seed int, dir string) (job testbed.Job, tell []int, err error) {
	f := m.framework
	python, complete := testbed.Python(f.name)
	if !complete {
		return job, nil, fmt.Errorf("no %s: run integration/env/install.sh %[1]s", f.name)
	}
	job = testbed.Job{Python: python, Program: m.program}
	tell = f.place(&job, m.Workers)
	job.Args = []string{"--hidden", m.Hidden, "--batch", strconv.Itoa(m.Batch), "--seed", strconv.Itoa(seed),
		"--lr", strconv.FormatFloat(m.LearningRate, 'g', -1, 64), "--test", "5000"}
	count := "--steps"
	if f.federal {
		count = "--rounds"
	}
	job.Args = append(append(job.Args, count, strconv.Itoa(steps)), f.args...)
	job.Args = append(job.Args, strings.Fields(m.With)...)
	switch f.name {
	case "mxnet":
	case "nvflare":
		job.Args = append(job.Args, "--clients", strconv.Itoa(m.Workers), "--folder", filepath.Join(dir, "nvflare"))
	default:
		job.Args = append(job.Args, "--end", filepath.Join(dir, "end"))
	}
	return job, tell, nil
}

// sent returns the bytes of pushes, of pulls and of everything so far. The second proxy is that of the workers.
func (f framework) sent(ctx context.Context, w *testbed.WAN, ps testbed.Proxies) (t traffic, err error) {
	t.WAN = float64(w.LinkBytes())
	if len(ps) == 0 {
		return t, nil
	}
	add := func(to *float64, ps testbed.Proxies, role string) {
		if err == nil {
			var n float64
			n, err = ps.Sum(ctx, "gradproxy_wire_bytes_total", fmt.Sprintf("role=%q", role))
			*to += n
		}
	}
	for _, role := range f.roles {
		add(&t.Push, ps[1:], role)
		add(&t.Pull, ps[:1], role)
	}
	if f.roles == nil {
		add(&t.Push, ps, "gradient")
		add(&t.Pull, ps, "state")
	}
	return t, err
}

// itself returns the bytes of pushes and pulls as the job sends them, in steps of size bytes for each worker.
func (f framework) itself(steps, workers, size int) (push, pull float64) {
	push = float64(steps * workers * size)
	if f.judged {
		return push, 2 * push
	}
	return push, push
}
