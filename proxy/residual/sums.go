package residual

import "github.com/gradproxy/gradproxy/tensor"

const (
	maxInputs  = 64   // samples of inputs that a Sums keeps, 2 KiB each
	maxResults = 64   // tensors of whose results it keeps samples, 6 KiB each
	staleAge   = 1024 // inputs after which the result of an earlier one will not come
)

// Sums compares samples of the messages that a connection's app puts into sums with their results and with the results
// of earlier sums, as all of them pass. Its methods are safe for concurrent use. The zero Sums is ready for use.
type Sums struct {
	mu     lock
	inputs map[uint64]*input // by tensor.Part
	count  int               // inputs ever noted
	under  *input            // the one whose result is passing
	result *tensor.ResultSampler

	results []*result // of each tensor
	came    int       // results that have ever come
}

// A result has samples of the results of a tensor's sums.
type result struct {
	key      uint64
	dtype    tensor.DType
	size     int // bytes of the message
	number   int // of the last result, in the order in which results came
	sample   tensor.Sample
	averages tensor.Averages
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
	s.keep(&in.t, &sample)
	return in.t, in.job, in.sample.Judge(&sample)
}

// keep keeps the result of a message in place of the tensor's last one. If there are too many tensors, it forgets the
// one whose last result is oldest.
func (s *Sums) keep(t *tensor.Tensor, sample *tensor.Sample) {
	s.came++
	var r *result
	for _, old := range s.results {
		if old.key == t.Key {
			r = old
			break
		}
		if r == nil || old.number < r.number {
			r = old
		}
	}
	if r == nil || r.key != t.Key && len(s.results) < maxResults {
		r = new(result)
		s.results = append(s.results, r)
	}
	if r.key != t.Key || r.dtype != t.DType || r.size != t.Size {
		*r = result{key: t.Key, dtype: t.DType, size: t.Size}
	}
	r.number, r.sample = s.came, *sample
	r.averages.Add(sample)
}

// Judge returns the verdict on a message of the tensor with a key, for which the content check has said v. The message
// is no gradient if it repeats the last result of its own tensor, or of another of its size, and earlier values did
// not: they have earned trust. It travels as it is if it follows from the results of its own tensor.
func (s *Sums) Judge(v tensor.Verdict, key uint64, x *tensor.Contribution) tensor.Verdict {
	if v != tensor.Fits && v != tensor.Outlier && v != tensor.Near {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.results {
		if r.size != x.Size || r.dtype != x.DType {
			continue
		}
		if x.Repeats(&r.sample) {
			return tensor.Result
		}
		if v == tensor.Fits && r.key == key && r.averages.Predict(x) {
			v = tensor.Predicted
		}
	}
	return v
}
