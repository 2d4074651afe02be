package inspect

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// elements returns n float32s from next, as bytes.
func elements(n int, next func(i int) float64) (b []byte) {
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(next(i))))
	}
	return b
}

// Roles that the messages prove are checked by the content too, as a proxy does, unless a server applies an optimizer
// to the tensor: pushes of averaged weights are no gradients.
func TestRolesOfAServersTensors(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	weights := make([]float64, 2000)
	for i := range weights {
		weights[i] = r.NormFloat64()
	}
	for _, c := range []struct {
		name  string
		proof tensor.Proof
		next  func(i int) float64
		want  func(value int) tensor.Role
	}{
		{"gradients", tensor.ByWire, func(int) float64 { return r.NormFloat64() }, func(int) tensor.Role { return tensor.Gradient }},
		{"gradients, the user says", tensor.ByUser, func(int) float64 { return r.NormFloat64() }, func(v int) tensor.Role {
			if v == 0 {
				return tensor.Unknown // there is none to compare it with
			}
			return tensor.Gradient
		}},
		{"weights", tensor.ByWire, func(i int) float64 { return weights[i] + 0.05*r.NormFloat64() }, func(v int) tensor.Role {
			if v == 0 {
				return tensor.Gradient // the messages say so, and there is none to compare it with
			}
			return tensor.Unknown
		}},
		{"weights, the user says gradients", tensor.ByUser, func(i int) float64 { return weights[i] + 0.05*r.NormFloat64() }, func(int) tensor.Role { return tensor.Unknown }},
		{"weights, for an optimizer", tensor.ByUpdate, func(i int) float64 { return weights[i] + 0.05*r.NormFloat64() }, func(int) tensor.Role { return tensor.Gradient }},
	} {
		ts := &tensors{spare: 1 << 20, last: map[blockName]*block{}}
		for v := range 6 {
			b := elements(len(weights), c.next)
			x := tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: len(b), Proof: c.proof}
			if got := ts.judge(nil, x, 0, b); got != c.want(v) {
				t.Errorf("%s: value %d is %v, want %v", c.name, v, got, c.want(v))
			}
		}
	}
}

// sumsOf returns a capture of two ranks that sum 4000 values a step, which own returns for a rank and a step.
func sumsOf(t *testing.T, own func(rank, step int) []byte) []byte {
	t.Helper()
	var calls []gloosim.Call
	for step := range 10 {
		calls = append(calls, gloosim.Call{Op: gloosim.AllReduce, Name: "sum", Step: step, Role: tensor.Gradient, DType: tensor.Float32, Wait: true,
			Data: func(rank int) []byte { return own(rank, step) }})
	}
	return captureOf(gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls, Tags: true, FirstID: true}))
}

// Where the user says that all sums are gradients, a sum of the same of all ranks ends that word as soon as its result
// is seen, and policies shrink nothing by loss.
func TestSumsOfTheSameOfAllRanks(t *testing.T) {
	for name, c := range map[string]struct {
		same  bool
		lossy bool
	}{"unlike": {false, true}, "alike": {true, false}} {
		b := sumsOf(t, func(rank, step int) []byte {
			if c.same {
				rank = 0
			}
			r := rand.New(rand.NewPCG(uint64(step), uint64(rank)))
			return elements(4000, func(int) float64 { return r.NormFloat64() })
		})
		report, err := Read(bytes.NewReader(b), Config{Sums: parser.SumsGradients, Policies: []string{Lossless, "3lc(s=1.75)"}})
		if err != nil {
			t.Fatal(err)
		}
		roles := report.Connections[0].FromClient.RoleBytes
		const part = 4 * 4000 / 2 // of a sum, that a rank sends as its own
		if lossy := roles.Gradient > part; lossy != c.lossy {
			t.Errorf("%s: %+v", name, roles)
		}
		lossless, threelc := report.Policies[0].Bytes, report.Policies[1].Bytes
		if lossy := float64(threelc) < 0.9*float64(lossless); lossy != c.lossy {
			t.Errorf("%s: %d bytes losslessly, %d by 3lc", name, lossless, threelc)
		}
	}
}

// The messages of a sum tell whether the sum is of earlier results: these messages are no gradients.
func TestSumsThatRepeatAResult(t *testing.T) {
	gradient := map[bool]int64{}
	for _, repeats := range []bool{false, true} {
		b := sumsOf(t, func(rank, step int) []byte {
			r := rand.New(rand.NewPCG(uint64(step), uint64(rank)))
			if !repeats || step < 9 {
				return elements(4000, func(int) float64 { return r.NormFloat64() })
			}
			r, other := rand.New(rand.NewPCG(uint64(step-1), 0)), rand.New(rand.NewPCG(uint64(step-1), 1))
			return elements(4000, func(int) float64 { return (r.NormFloat64() + other.NormFloat64()) / 2 })
		})
		report, err := Read(bytes.NewReader(b), Config{Sums: parser.SumsGradients})
		if err != nil {
			t.Fatal(err)
		}
		gradient[repeats] = int64(report.Connections[0].FromClient.RoleBytes.Gradient)
	}
	const part = 4 * 4000 / 2 // of a sum, that a rank sends as its own
	if gradient[false]-gradient[true] != part {
		t.Errorf("%d bytes are gradients, and %d if the last sum repeats the one before; want %d fewer", gradient[false], gradient[true], part)
	}
}

// A message that follows from the results of earlier sums is not taken for a gradient, and the one after it is, unless
// the result tells that all ranks have summed the same, as momentum.
func TestSumsThatFollowFromResults(t *testing.T) {
	const part = 4 * 4000 / 2 // of a sum, that a rank sends as its own
	random := func(step, rank int) []byte {
		r := rand.New(rand.NewPCG(uint64(step), uint64(rank)))
		return elements(4000, func(int) float64 { return r.NormFloat64() })
	}
	gradients := func(at int, own float64) int64 { // at: the step whose messages follow; own: how much of each rank's own they have
		b := sumsOf(t, func(rank, step int) []byte {
			if step != at {
				return random(step, rank)
			}
			message, v := make([]float64, 4000), make([]float32, 4000)
			add := func(step, rank int, k float64) {
				tensor.ToFloat32(v, random(step, rank), tensor.Float32)
				for i, x := range v {
					message[i] += k * float64(x)
				}
			}
			for earlier := range step {
				add(earlier, 0, math.Pow(0.5, float64(step-earlier)))
				add(earlier, 1, math.Pow(0.5, float64(step-earlier)))
			}
			add(step, rank, own)
			return elements(4000, func(i int) float64 { return message[i] })
		})
		report, err := Read(bytes.NewReader(b), Config{Sums: parser.SumsGradients})
		if err != nil {
			t.Fatal(err)
		}
		return int64(report.Connections[0].FromClient.RoleBytes.Gradient)
	}
	all := gradients(99, 0)
	for own, want := range map[float64]int64{0: 2 * part, 0.1: part} {
		if got := all - gradients(8, own); got != want {
			t.Errorf("%d of %d bytes are no gradients if sum 8 follows, with %v of the rank's own; want %d", got, all, own, want)
		}
	}
}
