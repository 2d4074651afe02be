package proxy

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// estimate sends messages as one flow of a dry run and returns its sizes.
func estimate(t *testing.T, codec string, residuals int64, messages [][]byte) (FlowSizes, bool) {
	t.Helper()
	return estimateOf(t, gradients{}, codec, residuals, messages)
}

func estimateOf(t *testing.T, protocol parser.Protocol, codec string, residuals int64, messages [][]byte) (FlowSizes, bool) {
	t.Helper()
	chosen, err := policy.New([]policy.Rule{{Codec: codec}}, realLoss)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewEstimator(Config{Codecs: realLoss, Protocols: []parser.Protocol{protocol}, Settings: Settings{Policy: chosen}, Residuals: residuals})
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
	if n, _, _ := r.proxy.Residuals().Held(); n != 0 {
		t.Errorf("%d tensors are remembered of a flow that has ended", n)
	}
	return sizes, r.Short()
}

// messages returns that many values of a tensor.
func messages(n int) (all [][]byte) {
	r := rand.New(rand.NewPCG(13, 14))
	for range n {
		_, msg := values(r)
		all = append(all, msg)
	}
	return all
}

// A dry run hands over as many bytes as a proxy does.
func TestEstimateIsTrue(t *testing.T) {
	all := messages(30)
	for _, codec := range []string{"3lc(s=1.75)", "int8", "lossless", policy.Verbatim} {
		reg := prometheus.NewRegistry()
		metrics := NewMetrics(reg)
		p := newPairWith(t, func(name string, c *Config) {
			if c.Codecs = realLoss; name == "near" {
				c.Metrics = metrics
			}
		}, []parser.Protocol{gradients{lasting: true}})
		p.choose(t, codec)
		client, server := p.connect(t)
		l := &lossyRun{t: t}
		for _, msg := range all { // each is delivered before the next is sent, and so read at once
			l.step(client, server, nil, msg)
		}
		client.CloseWrite()
		io.ReadAll(server)
		server.Close()
		io.ReadAll(client)
		p.near.Drain(t.Context()) // all is counted
		want := int64(0)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "gradproxy_wire_bytes_total" {
				for _, m := range f.GetMetric() {
					want += int64(m.GetCounter().GetValue())
				}
			}
		}
		sizes, _ := estimate(t, codec, 0, all)
		g := *sizes.Tensors[tensor.Gradient]
		if got := g.Wire + sizes.Opaque.Wire; got != want || want == 0 {
			t.Errorf("%s: %d bytes in the dry run, %d in truth", codec, got, want)
		}
		if g.Raw != 30*4*lossyValues || sizes.Opaque.Raw != 30*8 {
			t.Errorf("%s: %+v", codec, sizes)
		}
	}
}

// Rows of sparse gradients may lose something in a dry run too, and their keys go by the codec of keys.
func TestEstimateOfRows(t *testing.T) {
	l, r := newSparseRun(t, tensor.Float32, 8), rand.New(rand.NewPCG(15, 16))
	var all [][]byte
	for range 20 {
		ids := low(l.draw(r, 200))
		all = append(all, sparseMessage(sparseArray, ids, l.rows(r, len(ids))))
	}
	sizes, _ := estimateOf(t, sparseToy{dtype: tensor.Float32}, "quarter", 0, all)
	if g := sizes.Tensors[tensor.Gradient]; g.Wire > g.Raw/3 {
		t.Errorf("rows took %+v, of which the method sends a quarter", *g)
	}
	if x := sizes.Tensors[tensor.Exact]; x.Wire > x.Raw/5 {
		t.Errorf("keys took %+v", *x)
	}
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

// Weights that a host has received before cross as differences, and nothing of those that it holds already; another host receives them whole.
func TestEstimateOfWeights(t *testing.T) {
	for codec, most := range map[string]float64{"int4": 0.2, "3lc": 0.06} {
		chosen, err := policy.New([]policy.Rule{{Roles: []tensor.Role{tensor.State}, Codec: codec}}, realLoss)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewEstimator(Config{Codecs: realLoss, Settings: Settings{Policy: chosen}, Residuals: 1 << 30})
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
			flow := r.FlowTo(policy.Flow{Job: "job", Protocol: "toy"}, host)
			seg := parser.Segment{Len: len(raw), Tensor: tensor.Tensor{Key: 7, Base: 7, Role: tensor.State, DType: tensor.Float32, Size: len(raw), Hold: len(raw)}}
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
			if part := pull("a", 1e-3); part > most {
				t.Errorf("%s: a difference takes %.3f of the value's size, want %.2f at most", codec, part, most)
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
