package residual

import "github.com/gradproxy/gradproxy/tensor"

const (
	maxInputs = 64   // samples that a Sums keeps, 2 KiB each
	staleAge  = 1024 // inputs after which the result of an earlier one will not come
)

// Sums compares samples of the messages that a connection's app puts into sums with the results, as both pass. Its
// methods are safe for concurrent use. The zero Sums is ready for use.
type Sums struct {
	mu     lock
	inputs map[uint64]*input // by tensor.Part
	count  int               // inputs ever noted
	under  *input            // the one whose result is passing
	result *tensor.ResultSampler
}

// An input is a sample of a message, until its result comes.
type input struct {
	job    *Job
	t      tensor.Tensor
	sample tensor.Contribution
	number int
}

// Put notes a message by a sample of it. If there are too many messages, one that waits in vain makes room; if there is
// none such, Put does not note the message.
func (s *Sums) Put(job *Job, t tensor.Tensor, sample *tensor.Contribution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if s.inputs == nil {
		s.inputs = map[uint64]*input{}
	}
	if len(s.inputs) >= maxInputs {
		for part, old := range s.inputs {
			if s.count-old.number > staleAge {
				delete(s.inputs, part)
			}
		}
		if len(s.inputs) >= maxInputs {
			return
		}
	}
	s.inputs[t.Part] = &input{job: job, t: t, sample: *sample, number: s.count}
}

// See takes bytes of t, which has the result of a message if t.Whole is set. When the last of them has come, it returns
// the message's tensor, its job, and the verdict on the message; job is nil before, and if there is nothing to tell.
func (s *Sums) See(t tensor.Tensor, b []byte) (of tensor.Tensor, job *Job, v tensor.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Off == 0 {
		s.under = s.inputs[t.Part]
		delete(s.inputs, t.Part)
		if s.under != nil && s.under.t.Size != t.Size {
			s.under = nil
		}
		if s.under != nil {
			s.result = s.under.sample.NewResultSampler()
		}
	}
	if s.under == nil || s.under.t.Part != t.Part {
		return of, nil, v
	}
	if !s.result.Feed(t.Off, b) {
		s.under = nil
		return of, nil, v
	}
	if t.Off+len(b) < t.Size {
		return of, nil, v
	}
	in := s.under
	s.under = nil
	sample, ok := s.result.Result()
	if !ok {
		return of, nil, v
	}
	return in.t, in.job, in.sample.Judge(&sample)
}
