package site

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo/paramserver"
)

// A parameter server's job lives on when a proxy beside it is replaced, and the residuals of its gradients are not
// lost: at each flush the server's weights equal the sum of all gradients again, also at the first flush after the
// restart. Without a folder for state they never do again.
func TestResidualsSurviveARestart(t *testing.T) {
	t.Parallel()
	const before, after, flush = 14, 17, 4 // the residual is far from empty after 14 values; the first is exact
	for name, state := range map[string]string{"state is kept": "state: {dir: kept}\n", "state is lost": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			if err := os.Mkdir(filepath.Join(l.dir, "kept"), 0o700); err != nil {
				t.Fatal(err)
			}
			j := newServerJob(t)
			l.run(l.load(1, j.forward(t, j.worker)))
			beside := fmt.Sprintf("jobs: [{name: digits, networks: [127.0.0.0/16]}]\npolicy: [{role: gradient, codec: \"3lc(s=1.75)\", flush_every: %d}]\ndrain: 1s\n", flush) + state + j.forward(t, j.server)
			paris := l.run(l.load(0, beside))

			w := j.start(t)
			const n = 4096
			rnd := rand.New(rand.NewPCG(1, 2))
			sum, gradient, weights := make([]float64, n), make([]float32, n), make([]float32, n)
			must(t, w.SetOptimizer(paramserver.SGD{Rate: 1, Rescale: 1}))
			must(t, w.Init(3, weights))
			// step pushes a gradient and returns how far the server's weights are from all gradients, in norms of one.
			step := func() float64 {
				for i := range gradient {
					gradient[i] = float32(rnd.NormFloat64())
					sum[i] += float64(gradient[i])
				}
				must(t, w.PushPull(3, gradient, weights).Wait())
				var away float64
				for i, x := range weights {
					away += (float64(x) + sum[i]) * (float64(x) + sum[i])
				}
				return math.Sqrt(away / n)
			}
			const none, much = 1e-4, 0.3
			var away float64
			flushed := 0
			for i := range before {
				if i == before-flush-1 { // only new connections can use the residuals of the old ones
					must(t, w.Reconnect(j.ctx))
				}
				if away = step(); away < none {
					flushed++
				}
			}
			if flushed != before/flush || away < much {
				t.Fatalf("%d of %d values flushed, and the residual is %.3g at the end: the test shows nothing", flushed, before, away)
			}

			paris.end()
			paris.wait(t)
			if text, err := os.ReadFile(filepath.Join(l.dir, "kept", "paris.sources")); state != "" && (err != nil || !bytes.Contains(text, []byte(`"127.0.0.1"`))) {
				t.Errorf("the addresses from which peers have come: %q, %v", text, err)
			}
			if text, err := os.ReadFile(filepath.Join(l.dir, "kept", "paris.choices")); state != "" && (err != nil || !bytes.Contains(text, []byte(`"choices":[]`))) {
				t.Errorf("the carriers chosen for peers: %q, %v", text, err)
			}
			l.run(l.load(0, beside))
			must(t, w.Reconnect(j.ctx))

			flushed = 0
			for range after {
				if step() < none {
					flushed++
				}
			}
			if kept := state != ""; kept != (flushed >= after/flush-1) || !kept && flushed > 0 {
				t.Errorf("after the restart %d of %d values bring the server's weights to those of all gradients", flushed, after)
			}
			must(t, w.Finish())
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A serverJob is a job with one server, at Tokyo, and one worker, at Paris. The scheduler is dialled without proxies.
type serverJob struct {
	ctx                       context.Context
	nodes                     sync.WaitGroup
	scheduler, server, worker net.Listener
	through                   map[string]string // forward by published address
}

func newServerJob(t *testing.T) *serverJob {
	j := &serverJob{through: map[string]string{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	j.ctx = ctx
	for _, l := range []*net.Listener{&j.scheduler, &j.server} {
		*l = at(t, "127.0.2.2")
	}
	j.worker = at(t, "127.0.1.2")
	t.Cleanup(func() {
		cancel()
		j.nodes.Wait()
	})
	return j
}

func at(t *testing.T, host string) net.Listener {
	l, err := net.Listen("tcp", host+":0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// forward returns the configuration of a forward through which the node that listens on l is dialled.
func (j *serverJob) forward(t *testing.T, l net.Listener) string {
	addr := l.Addr().String()
	if j.through[addr] == "" {
		j.through[addr] = free(t)
	}
	return fmt.Sprintf("forward: [{listen: %q, target: %q}]\n", j.through[addr], addr)
}

func (j *serverJob) node(l net.Listener) paramserver.Config {
	var c paramserver.Config
	c.Workers, c.Servers, c.Scheduler, c.Addr, c.Listener = 1, 1, j.scheduler.Addr().String(), l.Addr().String(), l
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if by, ok := j.through[addr]; ok && addr != c.Addr {
			addr = by
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	return c
}

// start starts the nodes, after the proxies, and returns the worker.
func (j *serverJob) start(t *testing.T) *paramserver.Worker {
	j.nodes.Go(func() { paramserver.RunScheduler(j.ctx, j.node(j.scheduler)) })
	j.nodes.Go(func() { paramserver.RunServer(j.ctx, j.node(j.server)) })
	w, err := paramserver.NewWorker(j.ctx, j.node(j.worker))
	must(t, err)
	t.Cleanup(w.Close)
	return w
}
