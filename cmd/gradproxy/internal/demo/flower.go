package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/parser/flower/flowersim"
)

// localSteps is how many batches a hospital trains on between two averages.
const localSteps = 15

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
	hospitals := make([]*hospital, ranks)
	for i := range hospitals {
		h := &hospital{run: r, number: i, model: r.model(i), feed: r.feed(i)}
		hospitals[i] = h
		all.Go(func() {
			if err := j.join(ctx, across.String(), h); err != nil {
				cancel(fmt.Errorf("hospital %d: %w", i, err))
			}
		})
		c, err := j.next(ctx)
		if err != nil {
			all.Wait()
			return trained{}, err
		}
		h.client = c
	}
	if err := j.train(hospitals); err != nil {
		cancel(fmt.Errorf("server: %w", err))
	}
	seconds := time.Since(begin).Seconds()
	all.Wait()
	if ctx.Err() != nil {
		return trained{}, context.Cause(ctx)
	}
	cancel(nil)
	server.Wait()
	t := trained{appBytes: j.sent.Load(), seconds: seconds}
	for _, h := range hospitals {
		t.replicas = append(t.replicas, h.model)
	}
	return t, nil
}

// A flowerJob is a training.
type flowerJob struct {
	run     *run
	clients chan *flowersim.Client
	sent    atomic.Int64 // bytes that all have written
}

// A hospital is a client: it has the last model that the server sent, or that model after its own steps of training.
type hospital struct {
	run    *run
	number int
	model  *train.MLP
	feed   *feed
	client *flowersim.Client // as the server sees it
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
	return flowersim.Join(ctx, &countedConn{conn, &j.sent}, h.answer)
}

// train makes rounds until all steps are done: every hospital trains the model at the same time, and the server averages the results in the hospitals' order.
func (j *flowerJob) train(hospitals []*hospital) error {
	first, err := hospitals[0].client.Ask(flowersim.Message{Kind: flowersim.GetParameters})
	if err != nil {
		return err
	}
	model := first.Arrays
	for done := 0; done < j.run.Steps; done += localSteps {
		results, err := ask(hospitals, flowersim.Message{Kind: flowersim.Fit, Arrays: model})
		if err != nil {
			return err
		}
		if model, err = average(results); err != nil {
			return err
		}
		if _, err := ask(hospitals, flowersim.Message{Kind: flowersim.Evaluate, Arrays: model}); err != nil {
			return err
		}
	}
	for _, h := range hospitals {
		if err := h.client.End(); err != nil {
			return err
		}
	}
	return nil
}

// ask asks all hospitals at the same time.
func ask(hospitals []*hospital, m flowersim.Message) ([]flowersim.Message, error) {
	answers, errs := make([]flowersim.Message, len(hospitals)), make([]error, len(hospitals))
	var all sync.WaitGroup
	for i, h := range hospitals {
		all.Go(func() { answers[i], errs[i] = h.client.Ask(m) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

// average returns the mean of all results.
func average(results []flowersim.Message) ([][]float32, error) {
	mean := results[0].Arrays
	for _, r := range results[1:] {
		if len(r.Arrays) != len(mean) {
			return nil, fmt.Errorf("results of %d and %d arrays", len(mean), len(r.Arrays))
		}
		for k, a := range r.Arrays {
			if len(a) != len(mean[k]) {
				return nil, fmt.Errorf("array %d has %d values and %d", k, len(mean[k]), len(a))
			}
			for i, v := range a {
				mean[k][i] += v
			}
		}
	}
	for _, a := range mean {
		for i := range a {
			a[i] /= float32(len(results))
		}
	}
	return mean, nil
}

// answer answers a request of the server.
func (h *hospital) answer(m flowersim.Message) (flowersim.Message, error) {
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
	var arrays [][]float32
	for _, p := range h.model.Params() {
		arrays = append(arrays, p.Value)
	}
	return flowersim.Message{Arrays: arrays}, nil
}

// set makes the server's model the hospital's.
func (h *hospital) set(arrays [][]float32) error {
	params := h.model.Params()
	if len(arrays) != len(params) {
		return fmt.Errorf("a model of %d arrays, want %d", len(arrays), len(params))
	}
	for i, p := range params {
		if len(arrays[i]) != len(p.Value) {
			return fmt.Errorf("array %d has %d values, want %d", i, len(arrays[i]), len(p.Value))
		}
		copy(p.Value, arrays[i])
	}
	return nil
}

// fit trains the model on the hospital's images.
func (h *hospital) fit() {
	sgd := train.SGD{Rate: rate, Momentum: momentum}
	for range localSteps {
		images, labels := h.feed.next()
		loss := h.model.Step(images, labels, nil)
		sgd.Step(h.model.Params())
		if h.number == 0 {
			h.run.step(loss)
		}
	}
}

// counted is a listener whose connections count the bytes that are written.
type counted struct {
	net.Listener
	sent *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{c, l.sent}, nil
}

type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}
