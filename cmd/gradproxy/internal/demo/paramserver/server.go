package paramserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
)

// A server keeps the arrays, or parts of them, of its keys (kvstore_dist_server.h).
type server struct {
	stopped chan struct{} // closed by command 2
	stop    func()        // closes it

	mu        sync.Mutex
	sync      bool
	optimizer *SGD // nil: sums are sent back
	arrays    map[uint64]*array
}

// An array is the server's state of a key.
type array struct {
	weight   []float32
	velocity []float32
	sum      []float32 // scratch
	wire     []byte    // weight as it is sent; never changed, since it may be under way
	pushes   [][]byte  // this round's, by rank; nil where there is none yet
	requests []*pslitesim.Message
}

// RunServer is a server of a job. It returns when the job has ended, or when ctx is done.
func RunServer(ctx context.Context, c Config) error {
	s := &server{stopped: make(chan struct{}), arrays: make(map[uint64]*array)}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	n, err := pslitesim.Start(ctx, pslitesim.Server, c.Config, s)
	if err != nil {
		return err
	}
	defer n.Close()
	select {
	case <-s.stopped:
		return n.Finish()
	case <-n.Done():
		return fmt.Errorf("paramserver: server %d: %w", pslitesim.Rank(n.ID()), n.Err())
	}
}

// Awaits implements pslitesim.App: servers ask for nothing.
func (s *server) Awaits(int32) bool { return false }

// Receive implements pslitesim.App: a request of a worker.
func (s *server) Receive(n *pslitesim.Node, m *pslitesim.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !m.Request || m.From%2 == 0 || pslitesim.Rank(m.From) >= n.Workers:
		return errors.New("message that is no worker's request")
	case m.SimpleApp:
		return s.command(n, m)
	case m.Push:
		return s.push(n, m)
	}
	return s.pull(n, m)
}

// command obeys a command and answers it (CommandHandle).
func (s *server) command(n *pslitesim.Node, m *pslitesim.Message) error {
	switch m.Head {
	case commandSync:
		s.sync = true
	case commandOptimizer:
		o, err := unpickle(m.Body)
		if err != nil {
			return err
		}
		s.optimizer = &o
	case commandStop:
		defer s.stop() // when the answer is on its way
	default:
		return fmt.Errorf("command %d is not supported", m.Head)
	}
	answer := answerTo(m)
	answer.SimpleApp = true
	n.Send(m.From, answer)
	return nil
}

// push takes a key's initial value or one of this round's gradients (DataHandleDefault).
func (s *server) push(n *pslitesim.Node, m *pslitesim.Message) error {
	key, vals, err := open(m, 3)
	if err != nil {
		return err
	}
	a := s.arrays[key]
	if a == nil {
		s.arrays[key] = newArray(vals, n.Workers)
		return s.answer(n, m)
	}
	rank := pslitesim.Rank(m.From)
	switch {
	case !s.sync:
		return fmt.Errorf("gradient of key %#x without command %d: only synchronous training is supported", key, commandSync)
	case len(vals) != len(a.weight)*float32Len:
		return fmt.Errorf("gradient of %d bytes for key %#x of %d", len(vals), key, len(a.weight)*float32Len)
	case a.pushes[rank] != nil:
		return fmt.Errorf("second gradient of key %#x before the other workers' first", key)
	}
	a.pushes[rank] = vals
	a.requests = append(a.requests, m)
	if len(a.requests) < n.Workers {
		return nil
	}
	a.apply(s.optimizer)
	for _, r := range a.requests {
		if err := s.answer(n, r); err != nil {
			return err
		}
	}
	a.requests = a.requests[:0]
	return nil
}

// pull answers with an array.
func (s *server) pull(n *pslitesim.Node, m *pslitesim.Message) error {
	if _, _, err := open(m, 2); err != nil {
		return err
	}
	return s.answer(n, m)
}

// answer answers a push, a pull or both.
func (s *server) answer(n *pslitesim.Node, m *pslitesim.Message) error {
	answer := answerTo(m)
	if !m.Pull {
		n.Send(m.From, answer)
		return nil
	}
	key, _, err := open(m, len(m.Data))
	if err != nil {
		return err
	}
	a := s.arrays[key]
	if a == nil {
		return fmt.Errorf("pull of key %#x, which has no value yet", key)
	}
	data := part{key: key}.message(a.wire)
	answer.DataTypes = types(len(data))
	n.Send(m.From, answer, data...)
	return nil
}

// answerTo returns the fields that all answers take from their requests (kv_app.h, Response).
func answerTo(m *pslitesim.Message) pslitesim.Meta {
	return pslitesim.Meta{Head: m.Head, Push: m.Push, Pull: m.Pull, Timestamp: m.Timestamp, CustomerID: m.CustomerID}
}

// newArray returns an array of an initial value, which it takes over.
func newArray(vals []byte, workers int) *array {
	n := len(vals) / float32Len
	a := &array{
		wire: vals, pushes: make([][]byte, workers),
		weight: make([]float32, n), velocity: make([]float32, n), sum: make([]float32, n),
	}
	decode(a.weight, vals)
	return a
}

// apply ends a round: it adds the gradients, lower ranks' first, and changes the weights by them.
func (a *array) apply(o *SGD) {
	decode(a.sum, a.pushes[0])
	for _, push := range a.pushes[1:] {
		add(a.sum, push)
	}
	clear(a.pushes)
	if o == nil {
		copy(a.weight, a.sum)
	} else {
		o.update(a.weight, a.velocity, a.sum)
	}
	a.wire = make([]byte, len(a.weight)*float32Len)
	encode(a.wire, a.weight)
}
