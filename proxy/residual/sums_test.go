package residual

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// inputOf returns a message of normal values and a sample of it.
func inputOf(t *testing.T, part uint64) (tensor.Tensor, []byte, *tensor.Contribution) {
	t.Helper()
	v := make([]float32, 1024)
	for i := range v {
		v[i] = float32(i%7) - 3 + float32(part)/8
	}
	b := make([]byte, 4*len(v))
	tensor.FromFloat32(b, v, tensor.Float32)
	c, ok := tensor.Contribute(tensor.Float32, b)
	if !ok {
		t.Fatal("no sample")
	}
	return tensor.Tensor{Key: part, Part: part, Size: len(b), DType: tensor.Float32}, b, &c
}

// double returns a result to which all ranks have put in the same.
func double(b []byte) []byte {
	v := make([]float32, len(b)/4)
	tensor.ToFloat32(v, b, tensor.Float32)
	for i := range v {
		v[i] *= 2
	}
	out := make([]byte, len(b))
	tensor.FromFloat32(out, v, tensor.Float32)
	return out
}

// see gives a Sums the result of x in pieces.
func see(s *Sums, x tensor.Tensor, b []byte, piece int) (of tensor.Tensor, job *Job, v tensor.Verdict) {
	for x.Whole, x.Off = true, 0; x.Off < len(b) && job == nil; x.Off += piece {
		of, job, v = s.See(x, b[x.Off:min(len(b), x.Off+piece)])
	}
	return of, job, v
}

// Results find their inputs in any order, once.
func TestSumsPairsInputsWithResults(t *testing.T) {
	var s Sums
	job := new(Job)
	results := map[uint64][]byte{}
	inputs := map[uint64]tensor.Tensor{}
	for part := uint64(1); part <= 5; part++ {
		x, b, c := inputOf(t, part)
		s.Put(job, x, c)
		inputs[part], results[part] = x, double(b)
	}
	for _, part := range []uint64{3, 1, 5} {
		if of, j, v := see(&s, inputs[part], results[part], 1000); j != job || of.Key != part || v != tensor.Replicated {
			t.Errorf("part %d: of %d, %v", part, of.Key, v)
		}
		if _, j, _ := see(&s, inputs[part], results[part], 1000); j != nil {
			t.Errorf("part %d has a second result", part)
		}
	}
	other := inputs[2]
	other.Size += 4
	if _, j, _ := see(&s, other, append(results[2], 0, 0, 0, 0), 1<<20); j != nil {
		t.Error("a result of another length is taken")
	}
	if _, j, _ := see(&s, inputs[4], results[4], 1<<20); j != job {
		t.Error("the last result is not taken")
	}
}

// Inputs whose results do not come take a bounded place, and not for ever.
func TestSumsIsBounded(t *testing.T) {
	var s Sums
	job := new(Job)
	part := uint64(0)
	put := func(n int) {
		for range n {
			part++
			x, _, c := inputOf(t, part)
			s.Put(job, x, c)
		}
	}
	put(maxInputs + 10)
	if len(s.inputs) != maxInputs {
		t.Fatalf("%d inputs, want %d", len(s.inputs), maxInputs)
	}
	put(staleAge - maxInputs)
	x, b, _ := inputOf(t, part)
	if _, j, _ := see(&s, x, double(b), 512); j != job {
		t.Error("inputs that wait in vain keep all places")
	}
	if len(s.inputs) > maxInputs {
		t.Errorf("%d inputs", len(s.inputs))
	}
}

// A message that repeats the last result of its tensor, or of another tensor of its size and type, is no gradient if
// the tensor has earned trust. A tensor has one last result.
func TestMessagesThatRepeatResults(t *testing.T) {
	var s Sums
	job := new(Job)
	_, first, c := inputOf(t, 1)
	x := tensor.Tensor{Key: 1, Part: 100, Size: len(first), DType: tensor.Float32}
	// next gives the tensor a result.
	next := func(result []byte) {
		x.Part++
		s.Put(job, x, c)
		if _, j, _ := see(&s, x, result, 1000); j != job {
			t.Fatal("the result is not taken")
		}
	}
	judge := func(v tensor.Verdict, message []byte) tensor.Verdict {
		m, ok := tensor.Contribute(tensor.Float32, message)
		if !ok {
			t.Fatal("no sample")
		}
		return s.Judge(v, 99, &m) // of a tensor without results of its own
	}
	_, fresh, _ := inputOf(t, 6)
	if v := judge(tensor.Fits, first); v != tensor.Fits {
		t.Errorf("before the first result: %v", v)
	}
	next(double(first))
	for _, v := range []tensor.Verdict{tensor.Fits, tensor.Outlier, tensor.Near} {
		if got := judge(v, first); got != tensor.Result || !got.Foreign() {
			t.Errorf("half of the result, after the verdict %q: %q", v, got)
		}
		if got := judge(v, fresh); got != v {
			t.Errorf("a fresh value, after the verdict %q: %q", v, got)
		}
	}
	for _, v := range []tensor.Verdict{tensor.Unproved, tensor.Repeats, tensor.SingleSigned, tensor.FirstWeights} {
		if got := judge(v, first); got != v {
			t.Errorf("half of the result, after the verdict %q: %q", v, got)
		}
	}
	x.Key = 2
	next(double(fresh))
	if a, b := judge(tensor.Fits, first), judge(tensor.Fits, fresh); a != tensor.Result || b != tensor.Result {
		t.Errorf("results of two tensors: %v and %v", a, b)
	}
	x.Key = 1
	next(double(fresh))
	if v := judge(tensor.Fits, first); v != tensor.Fits {
		t.Errorf("the result before the last: %v", v)
	}
}

// An optimizer's momentum follows from the results of its tensor's sums, and travels as it is. Gradients do not follow,
// nor does anything from the results of another tensor, of another type, or from before another type came.
func TestMomentumFollowsFromResults(t *testing.T) {
	const n = 2048
	rnd := rand.New(rand.NewPCG(8, 8))
	var s Sums
	job := new(Job)
	encode := func(v []float32, d tensor.DType) ([]byte, *tensor.Contribution) {
		b := make([]byte, len(v)*d.Size())
		tensor.FromFloat32(b, v, d)
		c, ok := tensor.Contribute(d, b)
		if !ok {
			t.Fatal("no sample")
		}
		return b, &c
	}
	x := tensor.Tensor{Key: 7, Size: 4 * n, DType: tensor.Float32}
	gradient := func() []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rnd.NormFloat64())
		}
		return v
	}
	momentum := make([]float32, n)
	for step := range 12 {
		_, c := encode(gradient(), x.DType)
		if v := s.Judge(tensor.Fits, x.Key, c); v != tensor.Fits {
			t.Errorf("step %d: a gradient: %v", step, v)
		}
		x.Part++
		s.Put(job, x, c)
		sum := gradient()
		b, _ := encode(sum, x.DType)
		see(&s, x, b, 1000)
		for i := range momentum {
			momentum[i] = 0.9*momentum[i] + 0.1*sum[i]
		}
	}
	_, c := encode(momentum, x.DType)
	for v, want := range map[tensor.Verdict]tensor.Verdict{tensor.Fits: tensor.Predicted, tensor.Outlier: tensor.Outlier, tensor.Near: tensor.Near, tensor.Unproved: tensor.Unproved} {
		if got := s.Judge(v, x.Key, c); got != want || got.Foreign() {
			t.Errorf("momentum, after the verdict %q: %q", v, got)
		}
	}
	if v := s.Judge(tensor.Fits, 8, c); v != tensor.Fits {
		t.Errorf("of another tensor: %v", v)
	}
	x.DType, x.Size = tensor.BFloat16, 2*n
	_, halves := encode(momentum, x.DType)
	if v := s.Judge(tensor.Fits, x.Key, halves); v != tensor.Fits {
		t.Errorf("of another type: %v", v)
	}
	x.Part++
	s.Put(job, x, halves)
	b, _ := encode(gradient(), x.DType)
	see(&s, x, b, 1000)
	for _, c := range []*tensor.Contribution{c, halves} {
		if v := s.Judge(tensor.Fits, x.Key, c); v != tensor.Fits {
			t.Errorf("of %v, after a result of another type: %v", c.DType, v)
		}
	}
}

// In a step of more tensors than have averages, the first ones keep theirs from step to step. Tensors whose results no
// longer come make room.
func TestAveragesInALongStep(t *testing.T) {
	const n, tensors = 1024, maxAverage + 40
	rnd := rand.New(rand.NewPCG(9, 9))
	var s Sums
	part, sums := uint64(0), map[uint64][]float32{} // sums: of all results, by key
	sum := func(key uint64) {
		x := tensor.Tensor{Key: key, Size: 4 * n, DType: tensor.Float32}
		part++
		x.Part = part
		v, b := make([]float32, n), make([]byte, 4*n)
		for i := range v {
			v[i] = float32(rnd.NormFloat64())
		}
		tensor.FromFloat32(b, v, x.DType)
		c, ok := tensor.Contribute(x.DType, b)
		if !ok {
			t.Fatal("no sample")
		}
		s.Put(new(Job), x, &c)
		see(&s, x, b, 4*n)
		if sums[key] == nil {
			sums[key] = make([]float32, n)
		}
		for i := range v {
			sums[key][i] = 0.9*sums[key][i] + v[i]
		}
	}
	follows := func() (keys int) {
		for key, v := range sums {
			b := make([]byte, 4*n)
			tensor.FromFloat32(b, v, tensor.Float32)
			if c, _ := tensor.Contribute(tensor.Float32, b); s.Judge(tensor.Fits, key, &c) == tensor.Predicted {
				keys++
			}
		}
		return keys
	}
	for range 12 {
		for key := range uint64(tensors) {
			sum(key + 1)
		}
	}
	if got := follows(); got != maxAverage || len(s.averages) != maxAverage {
		t.Errorf("momentum of %d tensors follows from the results of %d, want %d", got, len(s.averages), maxAverage)
	}
	clear(sums)
	for range 2*tensors/10 + 20 { // until results of the first tensors have not come for twice as long as a step, and then some more
		for key := range uint64(10) {
			sum(tensors + 1 + key)
		}
	}
	if got := follows(); got != 10 || len(s.averages) > maxAverage {
		t.Errorf("of 10 later tensors momentum of %d follows, and there are averages of %d", got, len(s.averages))
	}
	for key := range uint64(2 * staleAge) {
		sum(2*tensors + key)
	}
	if len(s.averages) > maxAverage || s.averages[tensors+1] != nil {
		t.Errorf("after %d results of other tensors, a result each, there are averages of %d, and one is of a tensor before them: %v", 2*staleAge, len(s.averages), s.averages[tensors+1] != nil)
	}
}

// A message is not compared with results of another size or type: their samples are of other places.
func TestResultsOfOtherSizesAndTypes(t *testing.T) {
	// steps returns n elements in 256 runs of one value each: slices of any length n have the same samples.
	steps := func(d tensor.DType, n int) *tensor.Contribution {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(i*256/n) - 99
		}
		b := make([]byte, n*d.Size())
		tensor.FromFloat32(b, v, d)
		c, ok := tensor.Contribute(d, b)
		if !ok {
			t.Fatal("no sample")
		}
		return &c
	}
	var s Sums
	x := tensor.Tensor{Key: 1, Part: 1, Size: 4 * 1024, DType: tensor.Float32}
	s.Put(new(Job), x, steps(tensor.Float32, 1024))
	result := make([]byte, 4*1024)
	v := make([]float32, 1024)
	for i := range v {
		v[i] = 3 * (float32(i/4) - 99)
	}
	tensor.FromFloat32(result, v, tensor.Float32)
	see(&s, x, result, 4096)
	for want, c := range map[tensor.Verdict]*tensor.Contribution{
		tensor.Result: steps(tensor.Float32, 1024), tensor.Fits: steps(tensor.Float32, 2048), tensor.Outlier: steps(tensor.BFloat16, 2048),
	} {
		judged := want
		if want == tensor.Result {
			judged = tensor.Fits
		}
		if got := s.Judge(judged, 99, c); got != want {
			t.Errorf("%d bytes of %v: %v, want %v", c.Size, c.DType, got, want)
		}
	}
}

// Of more tensors than Sums has places for, the newest results are kept.
func TestResultsAreBounded(t *testing.T) {
	var s Sums
	job := new(Job)
	for part := range uint64(maxResults + 5) {
		x, b, c := inputOf(t, part+1)
		s.Put(job, x, c)
		see(&s, x, b, 512)
	}
	if len(s.results) != maxResults {
		t.Fatalf("%d results, want %d", len(s.results), maxResults)
	}
	var kept [maxResults + 5]bool
	for _, r := range s.results {
		kept[r.key-1] = true
	}
	for i, k := range kept {
		if k != (i >= 5) {
			t.Errorf("the result of tensor %d is kept: %v", i+1, k)
		}
	}
}

// The comparison of a message with as many results as Sums keeps, all of its size.
func BenchmarkMessageAndResults(b *testing.B) {
	const n = 64 << 10
	r := rand.New(rand.NewPCG(3, 4))
	fresh := func() []byte {
		v, message := make([]float32, n), make([]byte, 4*n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		tensor.FromFloat32(message, v, tensor.Float32)
		return message
	}
	for _, results := range []int{1, maxResults} {
		b.Run(fmt.Sprint(results), func(b *testing.B) {
			var s Sums
			job := new(Job)
			for key := range uint64(results) {
				x := tensor.Tensor{Key: key + 1, Part: key + 1, Size: 4 * n, DType: tensor.Float32}
				c, _ := tensor.Contribute(tensor.Float32, fresh())
				s.Put(job, x, &c)
				x.Whole = true
				s.See(x, fresh())
			}
			message := fresh()
			b.SetBytes(4 * n)
			for b.Loop() {
				c, _ := tensor.Contribute(tensor.Float32, message)
				if s.Judge(tensor.Fits, 1, &c) != tensor.Fits {
					b.Fatal("a fresh message repeats a result")
				}
			}
		})
	}
}
