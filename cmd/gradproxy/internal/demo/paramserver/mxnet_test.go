package paramserver

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/freeport"
)

// mxnetPython returns the interpreter of the environment that has MXNet, where integration/env/install.sh puts all of
// them.
func mxnetPython(t *testing.T) string {
	t.Helper()
	require.Long(t)
	dir := os.Getenv("GRADPROXY_ENV")
	if cache, err := os.UserCacheDir(); dir == "" && err == nil {
		dir = filepath.Join(cache, "gradproxy", "env")
	}
	venv := filepath.Join(dir, "mxnet")
	_, err := os.Stat(filepath.Join(venv, ".complete"))
	require.Named(t, "mxnet", err == nil, "install mxnet 1.9.1 and numpy 1.23.5 for Python 3.11 in "+venv)
	return filepath.Join(venv, "bin", "python")
}

// schedulerAddress returns an address of loopback that none of the job's own connections gets before the scheduler
// listens.
func schedulerAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Find("tcp", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// An mxnetJob has the settings of a job for MXNet's processes.
type mxnetJob struct {
	python           string
	scheduler        string
	workers, servers int
	momentum         float32
	steps            int
}

// run runs one role to its end, and returns its output.
func (j *mxnetJob) run(ctx context.Context, role string) (string, error) {
	host, port, err := net.SplitHostPort(j.scheduler)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, j.python, "testdata/mxnet_job.py", fmt.Sprint(j.steps), fmt.Sprint(j.momentum))
	cmd.Env = append(os.Environ(), "DMLC_ROLE="+role, "DMLC_PS_ROOT_URI="+host, "DMLC_PS_ROOT_PORT="+port,
		fmt.Sprintf("DMLC_NUM_WORKER=%d", j.workers), fmt.Sprintf("DMLC_NUM_SERVER=%d", j.servers),
		"DMLC_NODE_HOST="+host, "OMP_NUM_THREADS=1", "MXNET_KVSTORE_BIGARRAY_BOUND=1000")
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("mxnet's %s: %w: %s", role, err, diagnostics.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// together runs functions at once, and stops all when one fails.
func together(t *testing.T, all ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, f := range all {
		wg.Go(func() {
			if errs[i] = f(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// MXNet's own scheduler and servers take workers of this package for their like, and give them the weights that one
// process computes.
func TestWorkersTrainOnMXNetsServers(t *testing.T) {
	set, _ := digits.Load()
	const rate, momentum, workers, servers = 0.1, 0.9, 2, 2
	job := mxnetJob{python: mxnetPython(t), scheduler: schedulerAddress(t), workers: workers, servers: servers}
	want := reference(set, workers, testSteps, rate, momentum)
	worker := func(ctx context.Context) error {
		var c Config
		c.Scheduler, c.Workers, c.Servers, c.BigArray = job.scheduler, workers, servers, 1000
		c.Listener = listen(t)
		c.Addr = c.Listener.Addr().String()
		w, err := NewWorker(ctx, c)
		if err != nil {
			return err
		}
		defer w.Close()
		model := testModel(w.Rank())
		if err := w.Train(Training{
			Model: model, Optimizer: SGD{Rate: rate, Momentum: momentum}, Steps: testSteps,
			Next: dealer(set, w.Rank(), workers),
		}); err != nil {
			return err
		}
		if err := sameBits(model, want); err != nil {
			return err
		}
		return w.Finish()
	}
	together(t, worker, worker, job.role("scheduler", nil), job.role("server", nil), job.role("server", nil))
}

// role returns a function that runs a role. If said is not nil, it gets the role's output.
func (j *mxnetJob) role(role string, said *string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := j.run(ctx, role)
		if said != nil {
			*said = out
		}
		return err
	}
}

// MXNet's own workers, with a scheduler and servers of this package, end with the weights that MXNet's give them.
func TestMXNetsWorkersTrainHere(t *testing.T) {
	python := mxnetPython(t)
	var weights [2][2]string
	for ours := range weights {
		job := mxnetJob{python: python, scheduler: schedulerAddress(t), workers: 2, servers: 2, momentum: 0.9, steps: 8}
		all := []func(context.Context) error{
			job.role("worker", &weights[ours][0]), job.role("worker", &weights[ours][1]),
		}
		if ours == 0 {
			all = append(all, job.role("scheduler", nil), job.role("server", nil), job.role("server", nil))
		} else {
			var config Config
			config.Workers, config.Servers = job.workers, job.servers
			l := listen(t)
			config.Scheduler = l.Addr().String()
			job.scheduler = config.Scheduler
			scheduler := config
			scheduler.Listener = l
			all = append(all, func(ctx context.Context) error { return RunScheduler(ctx, scheduler) })
			for range job.servers {
				server := config
				server.Listener = listen(t)
				server.Addr = server.Listener.Addr().String()
				all = append(all, func(ctx context.Context) error { return RunServer(ctx, server) })
			}
		}
		together(t, all...)
	}
	if flat := slices.Concat(weights[0][:], weights[1][:]); flat[0] == "" || len(slices.Compact(flat)) != 1 {
		t.Errorf("weights %v with MXNet's servers, %v with ours", weights[0], weights[1])
	}
}
