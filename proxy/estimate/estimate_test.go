package estimate

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	codeclist "github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// estimate sends messages as one flow of a dry run and returns its sizes.
func estimate(t *testing.T, codec string, residuals int64, messages [][]byte) (Sizes, bool) {
	t.Helper()
	protocol := pathtest.Toy{Role: tensor.Gradient}
	chosen, err := policy.New([]policy.Rule{{Codec: codec}}, codeclist.New)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Codecs: codeclist.New, Protocols: []parser.Protocol{protocol}, Policy: chosen, Residuals: residuals})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	flow := r.Flow(policy.Flow{Protocol: "toy"})
	p, _ := protocol.New(parser.Conn{})
	for _, msg := range messages {
		var segments []parser.Segment
		for rest := msg; len(rest) > 0; rest = rest[segments[len(segments)-1].Len:] {
			seg, err := p.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			segments = append(segments, seg)
		}
		if err := flow.Send(msg, segments); err != nil {
			t.Fatal(err)
		}
	}
	sizes, err := flow.Close()
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := r.env.Residuals.Held(); n != 0 {
		t.Errorf("%d tensors are remembered of a flow that has ended", n)
	}
	return sizes, r.Short()
}

// messages returns that many values of a tensor, each of 1,000 elements.
func messages(n int) (all [][]byte) {
	r := rand.New(rand.NewPCG(13, 14))
	for range n {
		var raw []byte
		for range 1000 {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(r.NormFloat64())))
		}
		all = append(all, pathtest.ToyPiece(3, len(raw), raw))
	}
	return all
}

// Estimators differ from each other in nothing.
func TestEstimatorIsReproducible(t *testing.T) {
	all := messages(50)
	first, _ := estimate(t, "lossless", 0, all)
	for range 5 {
		again, _ := estimate(t, "lossless", 0, all)
		if *again.Tensors[tensor.Gradient] != *first.Tensors[tensor.Gradient] || again.Opaque != first.Opaque {
			t.Errorf("%+v, then %+v", first, again)
		}
	}
}

// With too little memory nothing can be compared, so nothing loses anything, and that is said.
func TestEstimatorWithoutMemory(t *testing.T) {
	all := messages(10)
	enough, short := estimate(t, "int4", 0, all)
	if short {
		t.Error("1 GiB is said to be too little")
	}
	less, short := estimate(t, "int4", 1000, all)
	if !short || less.Tensors[tensor.Gradient].Wire < 2*enough.Tensors[tensor.Gradient].Wire {
		t.Errorf("short %v: %+v, with memory %+v", short, less.Tensors[tensor.Gradient], enough.Tensors[tensor.Gradient])
	}
}

// A value that breaks off travels verbatim, as far as it has come.
func TestEstimateOfACutValue(t *testing.T) {
	all := messages(3)
	all[2] = all[2][:8+1000]
	whole, _ := estimate(t, "int4", 0, all[:2])
	cut, _ := estimate(t, "int4", 0, all)
	if more := cut.Tensors[tensor.Gradient].Wire - whole.Tensors[tensor.Gradient].Wire; more < 1000 || more > 1000+2*frame.MaxHeader {
		t.Errorf("1000 bytes take %d", more)
	}
}

// Weights that a host has received before cross as differences, and nothing of values that it holds already; another
// host receives them whole.
func TestEstimateOfWeights(t *testing.T) {
	for codec, limit := range map[string]float64{"int4": 0.2, "3lc": 0.06, "lossless": 0.75} {
		repeats := codec == "lossless" // its values are parts of others
		chosen, err := policy.New([]policy.Rule{{Roles: []tensor.Role{tensor.State}, Codec: codec}}, codeclist.New)
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Codecs: codeclist.New, Policy: chosen, Residuals: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		const n = 1 << 16
		random := rand.New(rand.NewPCG(1, 2))
		weights := make([]float32, n)
		raw := make([]byte, 4*n)
		pull := func(host string, step float64) float64 {
			t.Helper()
			for i := range weights {
				weights[i] += float32(step * random.NormFloat64())
			}
			tensor.FromFloat32(raw, weights, tensor.Float32)
			flow := r.FlowTo(policy.Flow{Job: "job", Protocol: "toy"}, host, nil)
			seg := parser.Segment{Len: len(raw), Tensor: tensor.Tensor{Key: 7, Base: 7, Role: tensor.State, DType: tensor.Float32, Size: len(raw), Hold: len(raw), Repeats: repeats}}
			if err := flow.Send(raw, []parser.Segment{seg}); err != nil {
				t.Fatal(err)
			}
			sizes, err := flow.Close()
			if err != nil {
				t.Fatal(err)
			}
			s := sizes.Tensors[tensor.State]
			if s.Raw != int64(len(raw)) {
				t.Fatalf("%d bytes of %d", s.Raw, len(raw))
			}
			return float64(s.Wire) / float64(s.Raw)
		}
		whole := pull("a", 1)
		if whole < 0.8 {
			t.Errorf("%s: the first value takes %.3f of its size", codec, whole)
		}
		for range 5 {
			if part := pull("a", 1e-3); part > limit {
				t.Errorf("%s: a difference takes %.3f of the value's size, want %.2f at most", codec, part, limit)
			}
		}
		if again := pull("a", 0); again > 0.005 {
			t.Errorf("%s: the same value again takes %.3f of its size", codec, again)
		}
		if other := pull("b", 0); other < 0.8 {
			t.Errorf("%s: another host's first value takes %.3f of its size", codec, other)
		}
		if alone := pull("", 0); alone < 0.8 {
			t.Errorf("%s: a host that holds nothing receives %.3f of the size", codec, alone)
		}
	}
}
