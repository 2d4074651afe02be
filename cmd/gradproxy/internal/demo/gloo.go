package demo

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo/ddp"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
)

// gloo trains data-parallel on the wire of torch.distributed: rank 0 at the far site, rank 1 at the near one.
func gloo(ctx context.Context, r *run) (trained, error) {
	l, err := listen(ctx)
	if err != nil {
		return trained{}, err
	}
	defer l.Close()
	toRank0, err := r.path.Forward(l.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return trained{}, err
	}
	// The addresses that the ranks tell each other, one at each site (RFC 5737): rank 1's is the greater, so it
	// connects.
	published := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("198.51.100.1:1")}
	config := func(rank int) gloosim.Config {
		if rank == 0 {
			return gloosim.Config{Rank: rank, Addrs: published, Listeners: []net.Listener{l}}
		}
		return gloosim.Config{Rank: rank, Addrs: published, Dial: func(ctx context.Context, _ int) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", toRank0.String())
		}}
	}

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	workers := make([]worker, ranks)
	var all sync.WaitGroup
	begin := time.Now()
	for rank := range workers {
		all.Go(func() {
			if err := workers[rank].run(ctx, r, config(rank)); err != nil {
				fail(fmt.Errorf("rank %d: %w", rank, err))
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return trained{}, context.Cause(ctx)
	}
	var t trained
	for _, w := range workers {
		t.replicas = append(t.replicas, w.model)
		t.appBytes += w.sent
		t.seconds = max(t.seconds, w.end.Sub(begin).Seconds())
	}
	return t, nil
}

// A worker is one rank of the job, with its model and counters.
type worker struct {
	model *train.MLP
	sent  int64     // bytes
	end   time.Time // of the last step
}

// run connects and trains.
func (w *worker) run(ctx context.Context, r *run, c gloosim.Config) error {
	g, err := gloosim.Connect(ctx, c)
	if err != nil {
		return err
	}
	defer g.Close()
	defer context.AfterFunc(ctx, func() { g.Abort(context.Cause(ctx)) })()

	w.model = r.model(c.Rank)
	feed := r.feed(c.Rank)
	optimizer := train.SGD{Rate: rate, Momentum: momentum}
	replica, err := ddp.New(g, w.model.Params(), &r.calls[c.Rank])
	if err != nil {
		return err
	}
	for range r.Steps {
		if err := replica.Forward(); err != nil {
			return err
		}
		images, labels := feed.next()
		loss := w.model.Step(images, labels, replica.Ready)
		if err := replica.Finish(); err != nil {
			return err
		}
		optimizer.Step(w.model.Params())
		if c.Rank == 0 {
			r.step(loss)
		}
	}
	w.end = time.Now()
	err = g.Barrier().Wait() // nobody closes while another still trains
	w.sent, _ = g.Stats()
	return err
}
