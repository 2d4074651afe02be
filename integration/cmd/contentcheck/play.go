//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// learning is the number of sums before a parser gives the next ones a role.
const learning = 2

// A result counts the sums of a job. A sum loses something if one of the messages does that its ranks send before the
// sum is complete.
type result struct {
	job                 string
	others, othersLossy int
	gradients           int
	share               float64 // sum over the gradients of the share of bytes that lost something
	worst               float64 // error of a sum of something else, over its norm
	first               int     // sum of something else at which a proxy doubted the job, from 1; 0: none did
	other               string  // name of the something else
	firstGradient       int     // gradient at which a proxy doubted the job, from 1, and wrongly; 0: none did
}

// A sender is the judgement and the encoders of one rank's messages.
type sender struct {
	store    *residual.Store
	job      *residual.Job
	sums     residual.Sums
	count    uint64 // messages sent
	messages []*message
}

// A message is one that a rank sends in each ring's first phase: its own part of a segment.
type message struct {
	t      tensor.Tensor
	off, n int // in bytes
	past   *residual.Dense
	placed *tensor.Placement // in the first weights; nil: not known
	got    []byte            // its elements in the newest sum, as they arrive
	enc    codecs.Encoder
	dec    codecs.Decoder
}

// newSender returns the sender of a rank of two. Their ring has four segments; each rank sends two. first has the
// weights that the job broadcasts before the first step, if it does: the sender's rank is not on the wire, so that a
// message may lie at two places in them.
func newSender(rank, size int, codec codecs.Codec, first []byte) (*sender, error) {
	s := &sender{store: residual.New(1<<30, residual.Events{})}
	s.job = s.store.Join("job")
	segment := ((size-1)/4 + 1 + 3) &^ 3
	var weights *tensor.Weights
	if first != nil {
		weights = tensor.NewWeights(size / 4)
		weights.Feed(first)
	}
	for i := range 2 {
		m := &message{off: (2*(1-rank) + i) * segment}
		m.n = min(segment, size-m.off)
		if weights != nil {
			m.placed = &tensor.Placement{Weights: []*tensor.Weights{weights}, Offsets: []int{i * segment / 4, (2 + i) * segment / 4}}
		}
		m.t = tensor.Tensor{Key: uint64(i) + 1, DType: tensor.Float32, Size: m.n}
		m.past = s.store.Dense("job", m.t, false)
		var err error
		if m.enc, err = feedback.NewEncoder(codec, tensor.Float32, m.past.Part(0, m.n)); err != nil {
			return nil, err
		}
		if m.dec, err = codec.NewDecoder(tensor.Float32, m.n/4); err != nil {
			return nil, err
		}
		s.messages = append(s.messages, m)
	}
	return s, nil
}

// send sends a rank's part of a sum. lossy is the number of bytes that lost something; failed and norm are the squared
// norms of the error and of the part.
func (s *sender) send(input []byte, learns bool) (lossy int, doubted bool, failed, norm float64, err error) {
	for _, m := range s.messages {
		block := input[m.off:][:m.n]
		sample, _ := tensor.Contribute(tensor.Float32, block)
		v, _ := m.past.Check(0, block, false, m.placed)
		v = s.sums.Judge(v, m.t.Key, &sample)
		if !learns && v.Foreign() {
			doubted = s.job.Doubt() || doubted
		}
		x := floats(block)
		for _, a := range x {
			norm += float64(a) * float64(a)
		}
		s.count++
		m.got, m.t.Part = block, s.count
		if learns {
			continue
		}
		if v != tensor.Fits || s.job.Doubted() {
			s.sums.Put(s.job, m.t, &sample)
			continue
		}
		earlier := m.past.SampleResidual(m.past.Part(0, m.n))
		coded, err := m.enc.Append(nil, block)
		if err != nil { // it travels raw
			s.sums.Put(s.job, m.t, &sample)
			continue
		}
		got := make([]byte, m.n)
		if err := m.dec.Decode(got, coded); err != nil {
			return 0, false, 0, 0, err
		}
		lossy += m.n
		left := m.past.SampleResidual(m.past.Part(0, m.n))
		sample.Lost(&earlier, &left)
		s.sums.Put(s.job, m.t, &sample)
		m.got = got
		for i, y := range floats(got) {
			failed += float64(y-x[i]) * float64(y-x[i])
		}
	}
	return lossy, doubted, failed, norm, nil
}

// result makes the sender's part of the result of a sum, to which the other rank's input is other, and compares it with
// the sender's messages. It reports whether that has doubted the job.
func (s *sender) result(name string, result, other []byte) (doubted bool) {
	for _, m := range s.messages {
		part := result[m.off:][:m.n]
		combine(name, part, m.got, other[m.off:][:m.n])
		whole := m.t
		whole.Whole = true
		if _, job, v := s.sums.See(whole, part); job != nil && v.Foreign() {
			doubted = s.job.Doubt() || doubted
		}
	}
	return doubted
}

// combine sets result to the sum of two ranks' elements, or to their maximum, minimum or product if that is the name.
func combine(name string, result, one, other []byte) {
	op := func(x, y float32) float32 { return x + y }
	switch name {
	case "maximum":
		op = func(x, y float32) float32 { return max(x, y) }
	case "minimum":
		op = func(x, y float32) float32 { return min(x, y) }
	case "product":
		op = func(x, y float32) float32 { return x * y }
	}
	v := floats(one)
	for i, y := range floats(other) {
		v[i] = op(v[i], y)
	}
	tensor.FromFloat32(result, v, tensor.Float32)
}

func floats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	tensor.ToFloat32(v, b, tensor.Float32)
	return v
}

// play sends all sums of a recording. broadcast: the proxies see the weights that DistributedDataParallel broadcasts
// before the first step. Where a rank has put the result of the last sum into a sum, as it was recorded, play puts in
// the result that the ranks have now, which has lost something.
func play(r *recording, codec string, broadcast bool) (*result, error) {
	c, err := all.New(codec)
	if err != nil {
		return nil, err
	}
	if r.ranks != 2 {
		return nil, fmt.Errorf("a recording of %d ranks", r.ranks)
	}
	var senders []*sender
	var first []byte
	if broadcast {
		first = r.first
	}
	for rank := range r.ranks {
		s, err := newSender(rank, 4*r.elements, c, first)
		if err != nil {
			return nil, err
		}
		senders = append(senders, s)
	}
	res := &result{job: r.job}
	recorded, delivered := make([]byte, 4*r.elements), make([]byte, 4*r.elements) // the last result
	for k, name := range r.names {
		doubted, lossy := false, 0
		var failed, norm float64
		var inputs [2][]byte
		for rank := range inputs {
			if inputs[rank] = r.input(k, rank); k > 0 && bytes.Equal(inputs[rank], recorded) {
				inputs[rank] = bytes.Clone(delivered)
			}
		}
		for rank, s := range senders {
			l, d, f, n, err := s.send(inputs[rank], k < learning)
			if err != nil {
				return nil, err
			}
			lossy, doubted, failed, norm = lossy+l, doubted || d, failed+f, norm+n
		}
		for rank, s := range senders {
			doubted = s.result(name, delivered, inputs[1-rank]) || doubted
		}
		combine(name, recorded, r.input(k, 0), r.input(k, 1))
		res.count(name, float64(lossy)/float64(4*r.elements), doubted, math.Sqrt(failed/max(norm, math.SmallestNonzeroFloat64)))
	}
	return res, nil
}

// count counts a sum, of whose bytes lossy is the share that lost something.
func (r *result) count(name string, lossy float64, doubted bool, failed float64) {
	if name == "gradient" {
		r.gradients++
		r.share += lossy
		if doubted && r.firstGradient == 0 {
			r.firstGradient = r.gradients
		}
		return
	}
	r.other = name
	if r.others++; lossy > 0 {
		r.othersLossy++
		r.worst = max(r.worst, failed)
	}
	if doubted && r.first == 0 {
		r.first = r.others
	}
}

// row returns the cells of the result's row of the table.
func (r *result) row() []any {
	found := ""
	switch {
	case r.firstGradient > 0:
		found = fmt.Sprintf("wrongly, at gradient %d", r.firstGradient)
	case r.first > 0:
		found = fmt.Sprintf("at number %d", r.first)
	}
	others, worst := "", ""
	if r.others > 0 {
		others = fmt.Sprintf("%d %s", r.others, r.other)
	}
	if r.worst > 0 {
		worst = fmt.Sprintf("%.2f", r.worst)
	}
	return []any{r.job, others, r.othersLossy, worst, found, r.gradients, fmt.Sprintf("%.0f %%", 100*r.share/float64(max(1, r.gradients)))}
}
