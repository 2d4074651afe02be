package residual

import (
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
