package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A federation is how hospitals train on one framework's wire: they join the server at the far site, which has them
// train, round after round. C is a hospital as the server sees it.
type federation[C interface{ End() error }] struct {
	// serve accepts hospitals until ctx is done, and then closes l and their connections.
	serve func(ctx context.Context, l net.Listener, joined func(C)) error

	// join has a hospital answer the server until the server ends the training.
	join func(ctx context.Context, conn net.Conn, h *hospital) error

	// rounds makes rounds until all steps are done.
	rounds func(r *run, hospitals []C) error
}

// train has all hospitals train, whose connections cross the path between the sites.
func (f federation[C]) train(ctx context.Context, r *run) (trained, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	l, err := listen(ctx)
	if err != nil {
		cancel(nil)
		return trained{}, err
	}
	var sent atomic.Int64 // bytes that all have written
	var server, near sync.WaitGroup
	joined := make(chan C, ranks)
	server.Go(func() {
		if err := f.serve(ctx, counted{l, &sent}, func(c C) { joined <- c }); err != nil {
			cancel(err)
		}
	})
	defer server.Wait()
	defer cancel(nil)
	across, err := r.path.Forward(l.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return trained{}, err
	}
	begin := time.Now()
	hospitals := r.hospitals()
	clients := make([]C, 0, ranks) // in the order of the hospitals
	for i, h := range hospitals {
		near.Go(func() {
			if err := f.dial(ctx, across.String(), h, &sent); err != nil {
				cancel(fmt.Errorf("hospital %d: %w", i, err))
			}
		})
		select {
		case c := <-joined:
			clients = append(clients, c)
		case <-ctx.Done():
			near.Wait()
			return trained{}, context.Cause(ctx)
		}
	}
	if err := f.teach(r, clients); err != nil {
		cancel(fmt.Errorf("server: %w", err))
	}
	seconds := time.Since(begin).Seconds()
	near.Wait()
	if ctx.Err() != nil {
		return trained{}, context.Cause(ctx)
	}
	return trainedBy(hospitals, sent.Load(), seconds), nil
}

// dial has a hospital join the server at addr.
func (f federation[C]) dial(ctx context.Context, addr string, h *hospital, sent *atomic.Int64) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return f.join(ctx, &countedConn{conn, sent}, h)
}

// teach is the server's training.
func (f federation[C]) teach(r *run, clients []C) error {
	if err := f.rounds(r, clients); err != nil {
		return err
	}
	for _, c := range clients {
		if err := c.End(); err != nil {
			return err
		}
	}
	return nil
}

// each asks all hospitals at the same time, and returns the arrays of their answers, in the hospitals' order.
func each[C any](clients []C, ask func(C) ([][]float32, error)) ([][][]float32, error) {
	answers, errs := make([][][]float32, len(clients)), make([]error, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() { answers[i], errs[i] = ask(c) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}
