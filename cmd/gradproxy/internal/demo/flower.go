package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser/flower/flowersim"
)

// federated trains as Flower does with FedAvg: two hospitals at the near site train the server's model, each on images of its own, and send it back; the server at
// the far site averages their models. Each hospital tests the average, too.
func federated(ctx context.Context, r *run) (trained, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	j := &flowerJob{run: r, clients: make(chan *flowersim.Client, ranks)}
	l, err := listen(ctx)
	if err != nil {
		return trained{}, err
	}
	across, err := r.path.Forward(l.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		l.Close()
		return trained{}, err
	}
	begin := time.Now()
	var server, all sync.WaitGroup
	server.Go(func() {
		if err := flowersim.Serve(ctx, counted{l, &j.sent}, func(c *flowersim.Client) { j.clients <- c }); err != nil {
			cancel(err)
		}
	})
	hospitals, clients := r.hospitals(), make([]*flowersim.Client, ranks)
	for i, h := range hospitals {
		all.Go(func() {
			if err := j.join(ctx, across.String(), h); err != nil {
				cancel(fmt.Errorf("hospital %d: %w", i, err))
			}
		})
		if clients[i], err = j.next(ctx); err != nil {
			all.Wait()
			return trained{}, err
		}
	}
	if err := j.train(clients); err != nil {
		cancel(fmt.Errorf("server: %w", err))
	}
	seconds := time.Since(begin).Seconds()
	all.Wait()
	if ctx.Err() != nil {
		return trained{}, context.Cause(ctx)
	}
	cancel(nil)
	server.Wait()
	return trainedBy(hospitals, j.sent.Load(), seconds), nil
}

// A flowerJob is a training.
type flowerJob struct {
	run     *run
	clients chan *flowersim.Client
	sent    atomic.Int64 // bytes that all have written
}

// next returns the client that joins next.
func (j *flowerJob) next(ctx context.Context) (*flowersim.Client, error) {
	select {
	case c := <-j.clients:
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// join has a hospital join the server.
func (j *flowerJob) join(ctx context.Context, addr string, h *hospital) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return flowersim.Join(ctx, &countedConn{conn, &j.sent}, func(m flowersim.Message) (flowersim.Message, error) { return answer(h, m) })
}

// train makes rounds until all steps are done: every hospital trains the model at the same time, and the server averages the results in the hospitals' order.
func (j *flowerJob) train(clients []*flowersim.Client) error {
	first, err := clients[0].Ask(flowersim.Message{Kind: flowersim.GetParameters})
	if err != nil {
		return err
	}
	model := first.Arrays
	for done := 0; done < j.run.Steps; done += localSteps {
		results, err := ask(clients, flowersim.Message{Kind: flowersim.Fit, Arrays: model})
		if err != nil {
			return err
		}
		if model, err = average(results); err != nil {
			return err
		}
		if _, err := ask(clients, flowersim.Message{Kind: flowersim.Evaluate, Arrays: model}); err != nil {
			return err
		}
	}
	for _, c := range clients {
		if err := c.End(); err != nil {
			return err
		}
	}
	return nil
}

// ask asks all hospitals at the same time, and returns the arrays of their answers.
func ask(clients []*flowersim.Client, m flowersim.Message) ([][][]float32, error) {
	answers, errs := make([][][]float32, len(clients)), make([]error, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			answer, err := c.Ask(m)
			answers[i], errs[i] = answer.Arrays, err
		})
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

// answer answers a request of the server.
func answer(h *hospital, m flowersim.Message) (flowersim.Message, error) {
	if m.Kind != flowersim.GetParameters {
		if err := h.set(m.Arrays); err != nil {
			return flowersim.Message{}, err
		}
	}
	switch m.Kind {
	case flowersim.Evaluate:
		return flowersim.Message{}, nil
	case flowersim.Fit:
		h.fit()
	}
	return flowersim.Message{Arrays: valuesOf(h.model)}, nil
}
