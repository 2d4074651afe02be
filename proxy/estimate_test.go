package proxy

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/estimate"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// estimated returns the sizes that a dry run of messages, one flow of a protocol, has by a codec.
func estimated(t *testing.T, protocol parser.Protocol, codec string, messages [][]byte) estimate.Sizes {
	t.Helper()
	chosen, err := policy.New([]policy.Rule{{Codec: codec}}, realLoss)
	if err != nil {
		t.Fatal(err)
	}
	r, err := estimate.New(estimate.Config{Codecs: realLoss, Protocols: []parser.Protocol{protocol}, Policy: chosen})
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
	return sizes
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
		sizes := estimated(t, gradients{}, codec, all)
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
	sizes := estimated(t, sparseToy{dtype: tensor.Float32}, "quarter", all)
	if g := sizes.Tensors[tensor.Gradient]; g.Wire > g.Raw/3 {
		t.Errorf("rows took %+v, of which the method sends a quarter", *g)
	}
	if x := sizes.Tensors[tensor.Exact]; x.Wire > x.Raw/5 {
		t.Errorf("keys took %+v", *x)
	}
}
