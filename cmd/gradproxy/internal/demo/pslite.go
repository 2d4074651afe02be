package demo

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo/paramserver"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// parameterServer trains as MXNet's kvstore "dist_sync" does, on the wire of ps-lite: the workers at the near site, the
// scheduler and one server at the far one. Requests cross the link on connections that workers open, and their answers
// on connections that the server opens.
func parameterServer(ctx context.Context, r *run) (trained, error) {
	j := &psJob{run: r, far: make(map[string]string), near: make(map[string]string)}
	defer j.close()
	for node := range firstWorker + ranks {
		if err := j.listen(ctx, node); err != nil {
			return trained{}, err
		}
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	start := func(name string, f func() error) {
		all.Go(func() {
			if err := f(); err != nil {
				fail(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	j.trained.replicas = make([]*train.MLP, ranks)
	j.begin = time.Now()
	start("scheduler", func() error { return paramserver.RunScheduler(ctx, j.config(scheduler)) })
	start("server", func() error { return paramserver.RunServer(ctx, j.config(server)) })
	for i := range ranks {
		start("worker", func() error { return j.work(ctx, j.config(firstWorker+i)) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return trained{}, context.Cause(ctx)
	}
	j.trained.appBytes = j.traffic.Sent.Load()
	return j.trained, nil
}

// Nodes of a psJob. The nodes before the first worker are at the far site.
const (
	scheduler = iota
	server
	firstWorker
)

// A psJob is a job of a parameter server.
type psJob struct {
	run       *run
	listeners []net.Listener    // by node
	far, near map[string]string // where nodes of that site dial to reach a published address at the other
	traffic   zmtp.Counter      // of all nodes
	begin     time.Time

	mu      sync.Mutex // guards trained
	trained trained
}

// listen makes the next node's listener, and the way to it from the other site.
func (j *psJob) listen(ctx context.Context, node int) error {
	l, err := listen(ctx)
	if err != nil {
		return err
	}
	j.listeners = append(j.listeners, l)
	cross, ways := j.run.path.Backward, j.far
	if node < firstWorker {
		cross, ways = j.run.path.Forward, j.near
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	across, err := cross(at)
	if err != nil {
		return err
	}
	ways[at.String()] = across.String()
	return nil
}

// config returns the configuration of a node.
func (j *psJob) config(node int) paramserver.Config {
	ways := j.near
	if node < firstWorker {
		ways = j.far
	}
	return paramserver.Config{Config: pslitesim.Config{
		Workers: ranks, Servers: 1, Traffic: &j.traffic,
		Scheduler: j.listeners[scheduler].Addr().String(), Addr: j.listeners[node].Addr().String(), Listener: j.listeners[node],
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if across, ok := ways[addr]; ok {
				addr = across
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}}
}

// work runs a worker.
func (j *psJob) work(ctx context.Context, c paramserver.Config) error {
	w, err := paramserver.NewWorker(ctx, c)
	if err != nil {
		return err
	}
	defer w.Close()
	model := j.run.model(w.Rank())
	err = w.Train(paramserver.Training{
		Model: model, Steps: j.run.Steps, Next: j.run.feed(w.Rank()).next,
		Optimizer: paramserver.SGD{Rate: rate, Momentum: momentum},
		Report: func(s paramserver.Step) error {
			if w.Rank() == 0 {
				j.run.step(s.Loss)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.trained.replicas[w.Rank()] = model
	j.trained.seconds = max(j.trained.seconds, time.Since(j.begin).Seconds())
	j.mu.Unlock()
	return w.Finish()
}

func (j *psJob) close() {
	for _, l := range j.listeners {
		l.Close()
	}
}

// listen listens on a free port of this machine, without Multipath TCP, which no framework's sockets speak.
func listen(ctx context.Context) (net.Listener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	return c.Listen(ctx, "tcp", "127.0.0.1:0")
}
