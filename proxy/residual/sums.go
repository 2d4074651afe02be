package residual

import "github.com/gradproxy/gradproxy/tensor"

const (
	maxInputs  = 64   // samples of inputs that a Sums keeps, 2 KiB each
	maxResults = 64   // samples of results that it keeps, 1 KiB each
	maxAverage = 64   // tensors of whose results it keeps averages, 5 KiB each
	staleAge   = 1024 // inputs after which the result of an earlier one will not come, and maximum of results between two of a tensor
)

// Sums compares samples of the messages that a connection's app puts into sums with their results and with the results
// of earlier sums, as all of them pass. Its methods are safe for concurrent use. The zero Sums is ready for use.
type Sums struct {
	mu     lock
	inputs map[uint64]*input // by tensor.Part
	count  int               // inputs ever noted
	under  *input            // the one whose result is passing
	result *tensor.ResultSampler

	results  []result             // the last one of each tensor
	averages map[uint64]*averages // of the results of a tensor, by its Key
	came     int                  // results that have ever come
	apart    int                  // the largest number of them from one of a tensor with averages to its next
}

// A result is a sample of the last result of a tensor's sum.
type result struct {
	key    uint64
	dtype  tensor.DType
	size   int // bytes of the message
	number int // of the result, in the order in which results came
	sample tensor.Sample
}

// These averages are of the results of a tensor's sums.
type averages struct {
	dtype  tensor.DType
	size   int // bytes of the message
	number int // of the last result, in the order in which results came
	moving tensor.Averages
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

// keep keeps the result of a message in place of the tensor's last one, or of the oldest if there are too many.
func (s *Sums) keep(t *tensor.Tensor, sample *tensor.Sample) {
	s.came++
	at, oldest := -1, 0
	for i := range s.results {
		if s.results[i].key == t.Key {
			at = i
			break
		}
		if s.results[i].number < s.results[oldest].number {
			oldest = i
		}
	}
	switch {
	case at < 0 && len(s.results) < maxResults:
		at = len(s.results)
		s.results = append(s.results, result{})
	case at < 0:
		at = oldest
	}
	s.results[at] = result{key: t.Key, dtype: t.DType, size: t.Size, number: s.came, sample: *sample}
	s.average(t, sample)
}

// average adds a result to the averages of its tensor. If too many tensors have averages, the tensors whose next
// results should have come long ago make room. If no tensor makes room, this one gets no averages: so the first
// tensors of a long step keep theirs from step to step.
func (s *Sums) average(t *tensor.Tensor, sample *tensor.Sample) {
	a := s.averages[t.Key]
	if a == nil {
		if len(s.averages) >= maxAverage {
			s.forgetStale()
		}
		if len(s.averages) >= maxAverage {
			return
		}
		if s.averages == nil {
			s.averages = map[uint64]*averages{}
		}
		a = &averages{number: s.came}
		s.averages[t.Key] = a
	}
	if a.dtype != t.DType || a.size != t.Size {
		*a = averages{dtype: t.DType, size: t.Size, number: a.number}
	}
	s.apart = max(s.apart, s.came-a.number)
	a.number = s.came
	a.moving.Add(sample)
}

// forgetStale forgets the averages of tensors whose results have not come for twice as long as they take from step to
// step.
func (s *Sums) forgetStale() {
	stale := staleAge
	if s.apart > 0 {
		stale = min(2*s.apart, staleAge)
	}
	for key, a := range s.averages {
		if s.came-a.number > stale {
			delete(s.averages, key)
		}
	}
}

// Judge returns the verdict on a message of the tensor with that key. v is the content check's verdict, which stays as
// it is unless it says that the tensor has earned trust. The message is no gradient if it repeats the last result of
// its own tensor, or of another of its size: values before it did not, since they have earned trust. It travels as it
// is if it follows from the results of its own tensor.
func (s *Sums) Judge(v tensor.Verdict, key uint64, x *tensor.Contribution) tensor.Verdict {
	if v != tensor.Fits && v != tensor.Outlier && v != tensor.Near {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.results {
		if r := &s.results[i]; r.size == x.Size && r.dtype == x.DType && x.Repeats(&r.sample) {
			return tensor.Result
		}
	}
	if a := s.averages[key]; v == tensor.Fits && a != nil && a.size == x.Size && a.dtype == x.DType && a.moving.Predict(x) {
		return tensor.Predicted
	}
	return v
}
