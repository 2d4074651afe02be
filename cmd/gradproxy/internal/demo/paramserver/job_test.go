package paramserver

import (
	"cmp"
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// A testJob is a job on loopback in one process.
type testJob struct {
	ctx       context.Context
	cancel    context.CancelFunc
	scheduler string
	config    Config // shared by all nodes

	nodes sync.WaitGroup

	mu   sync.Mutex
	errs map[string]error // of the scheduler and the servers
}

// newJob starts the scheduler and the servers of a job. They have a minute.
func newJob(t testing.TB, c Config) *testJob {
	t.Helper()
	j := newScheduler(t, c)
	for range cmp.Or(c.Servers, 1) {
		j.serve(t, j.ctx)
	}
	return j
}

// newScheduler starts the scheduler alone.
func newScheduler(t testing.TB, c Config) *testJob {
	t.Helper()
	j := &testJob{config: c, errs: make(map[string]error)}
	j.ctx, j.cancel = context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(func() {
		j.cancel()
		j.nodes.Wait()
	})
	l := listen(t)
	j.scheduler = l.Addr().String()
	j.run("scheduler", func() error { return RunScheduler(j.ctx, j.node(l)) })
	return j
}

// serve starts a server.
func (j *testJob) serve(t testing.TB, ctx context.Context) {
	l := listen(t)
	j.run("server", func() error { return RunServer(ctx, j.node(l)) })
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// node returns the configuration of a node that listens on l.
func (j *testJob) node(l net.Listener) Config {
	c := j.config
	c.Scheduler, c.Addr, c.Listener = j.scheduler, l.Addr().String(), l
	return c
}

// run runs a node until it ends.
func (j *testJob) run(what string, f func() error) {
	j.nodes.Go(func() {
		err := f()
		j.mu.Lock()
		defer j.mu.Unlock()
		if err != nil {
			j.errs[what] = err
		}
	})
}

// work runs f on each worker, and then the job's end if all went well. It returns the workers' errors by rank, or in
// any order if they have none.
func (j *testJob) work(t testing.TB, f func(*Worker) error) []error {
	t.Helper()
	workers := cmp.Or(j.config.Workers, 2)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range workers {
		l := listen(t)
		all.Go(func() {
			w, err := NewWorker(j.ctx, j.node(l))
			if err != nil {
				errs[i] = err
				return
			}
			defer w.Close()
			if err := f(w); err != nil {
				errs[w.Rank()] = err
				return
			}
			errs[w.Rank()] = w.Finish()
		})
	}
	all.Wait()
	return errs
}

// mustWork runs work that must not fail, neither on a worker nor elsewhere.
func (j *testJob) mustWork(t testing.TB, f func(*Worker) error) {
	t.Helper()
	errs := j.work(t, func(w *Worker) error {
		err := f(w)
		if err != nil {
			j.cancel() // the others wait for nothing
		}
		return err
	})
	for _, err := range errs {
		if err != nil {
			t.Errorf("worker: %v", err)
		}
	}
	j.nodes.Wait()
	for what, err := range j.errs {
		t.Errorf("%s: %v", what, err)
	}
}
