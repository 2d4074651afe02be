package sketched

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

// A Scheme is a way in which workers learn the sum of their gradients and residuals.
type Scheme uint8

const (
	Sketched  Scheme = iota // the two halves and their messages
	TrueTopK                // the k largest of the exact sum, which sketches approximate ("true top-k", section 5.3); d up
	LocalTopK               // the k largest of each worker's own; their union comes down (section 5.4)
	RandomK                 // k coordinates, the same of every worker, drawn anew at each step
	Dense                   // everything
)

var schemeNames = [...]string{"sketched", "true top-k", "local top-k", "random-k", "dense"}

func (s Scheme) String() string { return schemeNames[s] }

// Schemes lists every Scheme.
func Schemes() []Scheme { return []Scheme{Sketched, TrueTopK, LocalTopK, RandomK, Dense} }

// Traffic is the cost of a step to the worker with the highest cost.
type Traffic struct {
	Cost  // values
	Bytes // of messages, with their heads and coordinates
}

// Bytes are the bytes that one worker sends and receives.
type Bytes struct{ UpBytes, DownBytes int }

// A Simulation is W workers and a server in one process. They have the memory of Algorithm 2 or 3 under every scheme,
// so that schemes differ only in their messages. It is not safe for concurrent use.
type Simulation struct {
	plan    *Plan
	scheme  Scheme
	workers []*Worker // Sketched
	server  *Server
	memory  []vectors // the other schemes': of each worker
	step    uint64

	up, down  []byte // the latest message
	sum       []float32
	keys, all []uint64
	marked    []bool
}

// NewSimulation returns a Simulation at its first step, with a server as from NewServer and workers as from NewWorker.
func NewSimulation(p *Plan, workers int, scheme Scheme, m Memory) (*Simulation, error) {
	server, err := NewServer(p, workers)
	if err != nil {
		return nil, err
	}
	if int(scheme) >= len(schemeNames) {
		return nil, fmt.Errorf("sketched: scheme %d; the last is %d, %v", scheme, len(schemeNames)-1, Schemes()[len(schemeNames)-1])
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	s := &Simulation{plan: p, scheme: scheme, server: server}
	for range workers {
		if scheme != Sketched {
			s.memory = append(s.memory, newVectors(m, p.D))
			continue
		}
		w, err := NewWorker(p, m)
		if err != nil {
			return nil, err
		}
		s.workers = append(s.workers, w)
	}
	return s, nil
}

// Step gives each worker its gradient and sets update to the sum that all receive. It neither modifies nor retains
// gradients. On an error, which wraps codecs.ErrUnsuited or ErrOverflow, the simulation is unusable.
func (s *Simulation) Step(update []float32, gradients [][]float32) (Traffic, error) {
	if len(update) != s.plan.D || len(gradients) != len(s.server.added) {
		panic(fmt.Sprintf("sketched: %d gradients and %d values to update; the simulation has %d workers and %d values",
			len(gradients), len(update), len(s.server.added), s.plan.D))
	}
	if s.scheme == Sketched {
		return s.sketched(update, gradients)
	}
	for i, g := range gradients {
		if err := s.memory[i].accumulate(g, sketchedsgd.Limit(s.plan.D)); err != nil {
			return Traffic{}, fmt.Errorf("worker %d: %w", i, err)
		}
	}
	clear(update)
	s.step++
	d, k := s.plan.D, s.plan.K
	if s.plan.small() || s.scheme == Dense {
		return s.dense(update), nil
	}
	switch s.scheme {
	case LocalTopK:
		return s.local(update), nil
	case TrueTopK:
		s.sum = slices.Grow(s.sum[:0], d)[:d]
		clear(s.sum)
		for i := range s.memory {
			for j, v := range s.memory[i].v {
				s.sum[j] += v
			}
		}
		s.keys = sketchedsgd.Largest(s.keys[:0], s.sum, k)
		return s.common(update, Cost{d, k}), nil
	default:
		s.keys = subset(s.keys[:0], d, k, rand.New(rand.NewPCG(s.plan.Seed, s.step)))
		return s.common(update, Cost{k, k}), nil
	}
}

// sketched is Step with the two halves and their messages.
func (s *Simulation) sketched(update []float32, gradients [][]float32) (t Traffic, err error) {
	t.Cost = s.plan.Cost()
	for i, w := range s.workers {
		if s.up, err = w.Sketch(s.up[:0], gradients[i]); err != nil {
			return t, fmt.Errorf("worker %d: %w", i, err)
		}
		if err := s.server.AddSketch(i, s.up); err != nil {
			return t, err
		}
	}
	t.UpBytes = len(s.up)
	if !s.plan.small() {
		if s.down, err = s.server.Candidates(s.down[:0]); err != nil {
			return t, err
		}
		for i, w := range s.workers {
			if s.up, err = w.Values(s.up[:0], s.down); err != nil {
				return t, err
			}
			if err := s.server.AddValues(i, s.up); err != nil {
				return t, err
			}
		}
		t.UpBytes += len(s.up)
		t.DownBytes = len(s.down)
	}
	if s.down, err = s.server.Update(s.down[:0]); err != nil {
		return t, err
	}
	t.DownBytes += len(s.down)
	for _, w := range s.workers {
		if _, err := w.Update(update, s.down); err != nil {
			return t, err
		}
	}
	return t, nil
}

// common is Step where all workers send, and forget, the coordinates in keys; cost is its own.
func (s *Simulation) common(update []float32, c Cost) Traffic {
	for _, j := range s.keys {
		for i := range s.memory {
			update[j] += s.memory[i].v[j]
		}
		for i := range s.memory {
			s.memory[i].forget(j, update[j], len(s.memory))
		}
	}
	// For a true top-k, workers send all values; coordinates drawn at random need no message, but their seed.
	down := len(sketchedsgd.AppendCoordinates(nil, s.keys)) + 4*len(s.keys)
	if s.scheme == RandomK {
		down = 4 * len(s.keys)
	}
	return Traffic{c, Bytes{4 * c.Up, down}}
}

// local is Step of LocalTopK: each worker sends, and forgets, its own coordinates.
func (s *Simulation) local(update []float32) Traffic {
	if s.marked == nil {
		s.marked = make([]bool, s.plan.D)
	}
	clear(s.marked)
	var t Traffic
	for i := range s.memory {
		m := &s.memory[i]
		s.keys = sketchedsgd.Largest(s.keys[:0], m.v, s.plan.K)
		t.Up = max(t.Up, len(s.keys))
		t.UpBytes = max(t.UpBytes, len(sketchedsgd.AppendCoordinates(nil, s.keys))+4*len(s.keys))
		for _, j := range s.keys {
			update[j] += m.v[j]
			s.marked[j] = true
			m.forget(j, m.v[j], 1)
		}
	}
	s.all = s.all[:0]
	for j, marked := range s.marked {
		if marked {
			s.all = append(s.all, uint64(j))
		}
	}
	t.Down = len(s.all)
	t.DownBytes = len(sketchedsgd.AppendCoordinates(nil, s.all)) + 4*len(s.all)
	return t
}

// dense is Step of Dense, and of small tensors. Residuals are forgotten, since all was sent; the velocity never is,
// since masking all of it would leave no momentum.
func (s *Simulation) dense(update []float32) Traffic {
	for i := range s.memory {
		for j, v := range s.memory[i].v {
			update[j] += v
		}
		clear(s.memory[i].v)
	}
	return Traffic{Cost{s.plan.D, s.plan.D}, Bytes{4 * s.plan.D, 4 * s.plan.D}}
}

// subset appends k of the integers below d to dst, ascending; all subsets are equally likely.
func subset(dst []uint64, d, k int, random *rand.Rand) []uint64 {
	for i := 0; k > 0; i++ {
		if random.IntN(d-i) < k {
			dst = append(dst, uint64(i))
			k--
		}
	}
	return dst
}
