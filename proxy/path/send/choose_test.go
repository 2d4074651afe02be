package send

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// gradient returns n float32 that look like a gradient.
func gradient(r *rand.Rand, n int) []byte {
	v, b := make([]float32, n), make([]byte, 4*n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	tensor.FromFloat32(b, v, tensor.Float32)
	return b
}

// cachedValues is a peer's value cache of which no value is new twice.
type cachedValues struct {
	puts  []cache.Put
	known bool // the next value is one that the peer holds
	full  bool // there is no room
}

func (v *cachedValues) Put(_ frame.Tag, p cache.Put) (frame.ValueRef, bool, bool) {
	if v.full {
		return frame.ValueRef{}, false, false
	}
	p.Data = bytes.Clone(p.Data)
	v.puts = append(v.puts, p)
	return frame.ValueRef{Epoch: 1, ID: uint64(len(v.puts)), Size: len(p.Data)}, !v.known, true
}

func (v *cachedValues) Await(frame.Tag, frame.ValueRef, <-chan struct{}) ([]byte, func(), error) {
	return nil, nil, errors.New("no value comes")
}

func (v *cachedValues) Predicts(string, uint64) bool { return true }

// value plans a value and returns the plan's codec, or why it travels verbatim.
func planned(s *testSender, t tensor.Tensor) (p plan, codec string) {
	if !s.choose.value(&p, t, frame.MaxBlock) {
		return p, p.choice.Why.String()
	}
	return p, p.text
}

// The policy's choice counts only as far as the peer has the codec, the tensor has a past to compare it with, and there is a reference.
func TestChoice(t *testing.T) {
	lossy := policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)"}
	dense := tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 16}
	state := tensor.Tensor{Key: 2, Base: 2, Role: tensor.State, DType: tensor.Float32, Size: 1 << 16}
	for name, c := range map[string]struct {
		tensor tensor.Tensor
		change func(s *testSender)
		want   string
		shared bool
	}{
		"a gradient":               {tensor: dense, want: "3lc(s=1.75)"},
		"no room for its past":     {tensor: tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 33}, want: "lossless"},
		"the peer lacks it":        {tensor: dense, change: func(s *testSender) { s.direction.conn.PeerCodecs = []string{"lossless"} }, want: "lossless"},
		"the peer lacks all":       {tensor: dense, change: func(s *testSender) { s.direction.conn.PeerCodecs = []string{} }, want: "peer lacks codec"},
		"rows without an index":    {tensor: tensor.Tensor{Key: 1, Keys: 9, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 16}, want: "lossless"},
		"weights, none are shared": {tensor: state, want: "lossless"},
		"weights":                  {tensor: state, change: func(s *testSender) { s.direction.conn.Values = new(cachedValues) }, want: "lossless", shared: true},
	} {
		s := newTestSender(t, pathtest.Toy{}, lossy)
		if c.change != nil {
			c.change(s)
		}
		p, got := planned(s, c.tensor)
		if got != c.want || p.shared != c.shared {
			t.Errorf("%s travels by %s (%v), shared: %v; want %s, %v", name, got, p.choice.Why, p.shared, c.want, c.shared)
		}
		if c.tensor.Size < 1<<20 && (p.dense != nil) != (c.want == "3lc(s=1.75)") {
			t.Errorf("%s: a past is kept: %v", name, p.dense != nil)
		}
	}
}

// The first value of a gradient travels exactly, since there is nothing to compare it with, and so does one that looks like something else.
func TestContentCheck(t *testing.T) {
	const n = 16 << 10
	s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)"})
	r := rand.New(rand.NewPCG(1, 2))
	var exact []bool
	for step := range 6 {
		v := gradient(r, n)
		if step == 4 { // weights, say
			for i := range n {
				copy(v[4*i:], []byte{0, 0, 0x7a, 0x44}) // 1000
			}
		}
		before := len(deliver(t, s.env, s.sink.Sent()))
		if err := s.takes(pathtest.ToyPiece(1, 4*n, v)); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		got := deliver(t, s.env, s.sink.Sent())[before+8:]
		exact = append(exact, bytes.Equal(got, v))
	}
	if !exact[0] || exact[1] && exact[2] && exact[3] || !exact[4] {
		t.Errorf("values that travel exactly: %v; want the first and the fifth, and some with loss", exact)
	}
}

// A shared value leaves as a Ref, in the place of its block; where the cache has no room it travels by itself, exactly.
func TestSharedValues(t *testing.T) {
	const n = 4 << 10
	values := new(cachedValues)
	s := newTestSender(t, pathtest.Toy{Role: tensor.State, Base: true})
	s.direction.conn.Values = values
	v := make([]byte, 4*n)
	for range 2 {
		if err := s.takes(pathtest.ToyPiece(1, 4*n, v)); err != nil {
			t.Fatal(err)
		}
		values.known = true
	}
	s.Wait()
	blocks := len(values.puts)
	if k := kinds(t, s.sink.Sent()); k[frame.Ref] != blocks || blocks == 0 || k[frame.Block] != 0 {
		t.Fatalf("frames %v, and %d values were put", k, blocks)
	}
	put := values.puts[0]
	if put.Decl.Key != 2 || put.Role != tensor.State || put.Observe == nil || !bytes.Equal(put.Data, v[:len(put.Data)]) {
		t.Errorf("a value was put as %+v", put.Decl)
	}
	values.full = true
	s.sink = new(pathtest.Sink)
	s.direction.conn.Stream = s.sink
	last := pathtest.ToyPiece(1, 4*n, v)
	if err := s.takes(last); err != nil {
		t.Fatal(err)
	}
	if got := s.delivered(t); !bytes.Equal(got, last) {
		t.Errorf("%d bytes arrive of %d that the cache had no room for, or they differ", len(got), len(last))
	}
	pathtest.Whole(t, s.env)
}
