package sketched

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

// maxWorkers bounds the number of workers that a message may claim.
const maxWorkers = 1 << 20

// ErrOverflow says that a sum over the workers is not finite.
var ErrOverflow = errors.New("sketched: a sum overflows")

// A Server adds the messages of the workers. Each step is AddSketch of every worker, Candidates, AddValues of every
// worker, and Update; of a small tensor, AddSketch of every worker and Update. It holds no memory from step to step. It
// is not safe for concurrent use.
//
// Sums are made in the order in which messages are added: for the same bits in every run, add in the workers' order.
type Server struct {
	plan   *Plan
	sketch *countsketch.Sketch
	picker sketchedsgd.Picker
	step   uint32
	phase  phase
	added  []bool // [worker]: whether its message of this phase is in
	left   int    // messages that are missing

	asked   []uint64  // the step's candidates
	sums    []float32 // at the candidates, or of the whole tensor
	values  []float32 // one worker's
	updated []uint64
}

// NewServer returns a Server at step 0 for a number of workers.
func NewServer(p *Plan, workers int) (*Server, error) {
	if workers < 1 || workers > maxWorkers {
		return nil, fmt.Errorf("sketched: %d workers; write a number from 1 to %d", workers, maxWorkers)
	}
	s := &Server{plan: p, added: make([]bool, workers), left: workers}
	if p.small() {
		s.sums, s.values = make([]float32, p.D), make([]float32, p.D)
	} else {
		s.sketch = p.coded.Take()
	}
	return s, nil
}

// next begins a phase.
func (s *Server) next(t phase) {
	s.phase, s.left = t, len(s.added)
	clear(s.added)
}

// due returns an error that wraps ErrOrder unless a message of this worker is due in phase t.
func (s *Server) due(worker int, t phase) error {
	if worker < 0 || worker >= len(s.added) {
		panic(fmt.Sprintf("sketched: worker %d of %d", worker, len(s.added)))
	}
	if s.phase != t || s.added[worker] {
		return fmt.Errorf("%w: a message of worker %d that is not due in step %d", ErrOrder, worker, s.step)
	}
	return nil
}

func (s *Server) has(worker int) {
	s.added[worker] = true
	s.left--
}

// complete returns an error that wraps ErrOrder unless all messages of phase t are there.
func (s *Server) complete(t phase) error {
	if s.phase != t || s.left > 0 {
		return fmt.Errorf("%w: %d of %d workers' messages are missing in step %d", ErrOrder, s.left, len(s.added), s.step)
	}
	return nil
}

// AddSketch adds the message that a worker, numbered from 0, made with Sketch: S <- S + S_i (Algorithms 2 and 3, line 6
// and 8, without the factor 1/W, on which no choice depends). An error wraps ErrOrder, which changes nothing, or
// codecs.ErrCorrupt or ErrOverflow, after which the server is unusable.
func (s *Server) AddSketch(worker int, msg []byte) error {
	if err := s.due(worker, forFirst); err != nil {
		return err
	}
	k := kindSketch
	if s.plan.small() {
		k = kindWhole
	}
	body, err := cutHead(msg, k, s.step)
	if err != nil {
		return err
	}
	if s.plan.small() {
		if err = sketchedsgd.GetValues(s.values, body); err == nil {
			err = s.sum(worker)
		}
	} else if err = s.sketch.AddEncoded(body); errors.Is(err, countsketch.ErrOverflow) {
		err = fmt.Errorf("%w: sketched: worker %d: %w", ErrOverflow, worker, err)
	} else if err != nil {
		err = fmt.Errorf("%w: sketched: worker %d: %w", codecs.ErrCorrupt, worker, err)
	}
	if err == nil {
		s.has(worker)
	}
	return err
}

// sum adds one worker's values.
func (s *Server) sum(worker int) error {
	for i, v := range s.values {
		if s.sums[i] += v; !(math.Abs(float64(s.sums[i])) <= math.MaxFloat32) {
			return fmt.Errorf("%w: value %d, at worker %d", ErrOverflow, i, worker)
		}
	}
	return nil
}

// Candidates chooses coordinates from the merged sketch and appends the message that asks all workers for their values
// to dst. The error wraps ErrOrder, and dst and the server are as before.
func (s *Server) Candidates(dst []byte) ([]byte, error) {
	if s.plan.small() {
		return dst, fmt.Errorf("%w: a small tensor has no second round", ErrOrder)
	}
	if err := s.complete(forFirst); err != nil {
		return dst, err
	}
	s.asked = s.picker.Pick(s.plan.coded, s.sketch, uint64(s.step))
	s.sketch.Reset()
	s.sums = append(s.sums[:0], make([]float32, len(s.asked))...)
	s.values = append(s.values[:0], make([]float32, len(s.asked))...)
	s.next(forSecond)
	return sketchedsgd.AppendCoordinates(appendHead(dst, kindCandidates, s.step), s.asked), nil
}

// AddValues adds the message that a worker made with Values. An error wraps ErrOrder or codecs.ErrCorrupt, which
// changes nothing, or ErrOverflow, after which the server is unusable.
func (s *Server) AddValues(worker int, msg []byte) error {
	if err := s.due(worker, forSecond); err != nil {
		return err
	}
	body, err := cutHead(msg, kindValues, s.step)
	if err != nil {
		return err
	}
	if err := sketchedsgd.GetValues(s.values, body); err != nil {
		return err
	}
	if err := s.sum(worker); err != nil {
		return err
	}
	s.has(worker)
	return nil
}

// Update appends the message with the step's update to dst, which goes to all workers: the k candidates with the
// largest sums, without sums of 0 (for line 13 of Algorithm 3 asks which g̃ are not 0), and their exact sums. The
// error wraps ErrOrder, and dst and the server are as before.
func (s *Server) Update(dst []byte) ([]byte, error) {
	last, k := forSecond, kindUpdate
	if s.plan.small() {
		last, k = forFirst, kindWholeUpdate
	}
	if err := s.complete(last); err != nil {
		return dst, err
	}
	dst = binary.LittleEndian.AppendUint32(appendHead(dst, k, s.step), uint32(len(s.added)))
	if s.plan.small() {
		dst = sketchedsgd.AppendValues(dst, s.sums)
		clear(s.sums)
	} else {
		s.updated = sketchedsgd.Largest(s.updated[:0], s.sums, s.plan.K)
		s.values = s.values[:0]
		for at, j := range s.updated {
			s.updated[at] = s.asked[j]
			s.values = append(s.values, s.sums[j])
		}
		dst = sketchedsgd.AppendValues(sketchedsgd.AppendCoordinates(dst, s.updated), s.values)
	}
	s.step++
	s.next(forFirst)
	return dst, nil
}
