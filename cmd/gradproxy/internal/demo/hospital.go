package demo

import (
	"fmt"
	"net"
	"sync/atomic"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
)

// localSteps is how many batches a hospital trains on between two averages.
const localSteps = 15

// A hospital is a client of federated learning: it has the last model that the server sent, or that model after its own
// steps of training.
type hospital struct {
	run    *run
	number int
	model  *train.MLP
	feed   *feed
}

// hospitals returns all of them, each with weights of its own.
func (r *run) hospitals() []*hospital {
	all := make([]*hospital, ranks)
	for i := range all {
		all[i] = &hospital{run: r, number: i, model: r.model(i), feed: r.feed(i)}
	}
	return all
}

// trainedBy returns the results of a job of hospitals.
func trainedBy(hospitals []*hospital, sent int64, seconds float64) trained {
	t := trained{appBytes: sent, seconds: seconds}
	for _, h := range hospitals {
		t.replicas = append(t.replicas, h.model)
	}
	return t
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

// valuesOf returns the arrays of a model, not copied.
func valuesOf(m *train.MLP) (arrays [][]float32) {
	for _, p := range m.Params() {
		arrays = append(arrays, p.Value)
	}
	return arrays
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

// average returns the mean of all models or differences of models, in their order. It takes the first one for that.
func average(results [][][]float32) ([][]float32, error) {
	mean := results[0]
	for _, arrays := range results[1:] {
		if len(arrays) != len(mean) {
			return nil, fmt.Errorf("results of %d and %d arrays", len(mean), len(arrays))
		}
		for k, a := range arrays {
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
