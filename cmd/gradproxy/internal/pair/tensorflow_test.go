package pair

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	sim "github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A cluster is a worker of TensorFlow near, and a parameter server far, which call each other through the proxies.
type cluster struct {
	t       *testing.T
	process *sim.Process      // the worker
	worker  *sim.Peer         // as the server calls it
	server  *sim.Peer         // as the worker calls it
	tensors map[string][]byte // contents that the worker has, by edge
}

func newCluster(t *testing.T, rules ...policy.Rule) (*cluster, *Pair) {
	t.Helper()
	p := start(t, Config{Rules: rules, Jobs: []proxy.Job{{Name: "job", Networks: loopback}}})
	x := &cluster{t: t, process: new(sim.Process)}
	ps, w := listen(t), listen(t)
	go new(sim.Process).Serve(t.Context(), ps)
	go x.process.Serve(t.Context(), w)
	back, err := p.Backward(w.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	x.server, x.worker = sim.NewPeer(forward(t, p, ps).String(), nil), sim.NewPeer(back.String(), nil)
	t.Cleanup(x.server.Close)
	t.Cleanup(x.worker.Close)
	return x, p
}

// register registers the server's part of the graph, which takes "g" and "h" for gradients and no others.
func (x *cluster) register() {
	x.t.Helper()
	graph := []sim.Node{{Name: "w", Op: "VariableV2"}, {Name: "lr", Op: "Const"}}
	for _, edge := range []string{"g", "h"} {
		graph = append(graph, sim.Node{Name: edge, Op: "_Recv", From: sim.Worker, To: sim.Server, Edge: edge},
			sim.Node{Name: "apply/" + edge, Op: "ApplyGradientDescent", Inputs: []string{"w", "lr", edge}})
	}
	if err := x.server.Register(x.t.Context(), sim.Session, graph); err != nil {
		x.t.Fatal(err)
	}
}

// step runs the graph and pulls all tensors of the worker at once. It returns their contents as they arrive, and checks
// that all other bytes do so as they were.
func (x *cluster) step(number uint64) map[string][]byte {
	x.t.Helper()
	if err := x.server.Run(x.t.Context(), sim.Session, number); err != nil {
		x.t.Fatal(err)
	}
	got := map[string][]byte{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for edge, content := range x.tensors {
		key := sim.Key(sim.Worker, sim.Server, edge)
		x.process.Send(number, key, sim.Tensor(1, content, uint64(len(content)/4)))
		all.Go(func() {
			b, err := x.worker.Recv(x.t.Context(), number, key)
			want := sim.Response(sim.Tensor(1, content, uint64(len(content)/4)))
			head := len(want) - len(content)
			if err != nil || len(b) != len(want) || !bytes.Equal(b[:head], want[:head]) {
				x.t.Errorf("%s: %d bytes, want %d; %v", edge, len(b), len(want), err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got[edge] = b[head:]
		})
	}
	all.Wait()
	if x.t.Failed() {
		x.t.FailNow()
	}
	return got
}

// floats returns n values whose exponents are alike, as bytes.
func floats(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, 4*n)
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())))
	}
	return b
}

// Tensors several times as large as the windows, three at a time on one connection, arrive as they were, and smaller on
// the way.
func TestTensorFlowLosslessly(t *testing.T) {
	x, p := newCluster(t)
	r := rand.New(rand.NewPCG(1, 2))
	x.register()
	for i := range 3 {
		x.tensors = map[string][]byte{"g": floats(r, 3<<20), "h": floats(r, 2<<20+1), "metric": floats(r, 1<<20)}
		for edge, b := range x.step(uint64(i) + 1) {
			if !bytes.Equal(b, x.tensors[edge]) {
				t.Errorf("step %d: %s has changed", i, edge)
			}
		}
	}
	raw, wire := 0, 0
	for _, s := range p.Near.Tensors() {
		raw += int(s.RawBytes)
		wire += int(s.WireBytes)
		if s.Protocol != "tensorflow" {
			t.Errorf("a tensor of %s", s.Protocol)
		}
	}
	if raw < 3*4*6<<20 || 100*wire > 97*raw { // 83 % if no block ever waited for its rest in vain, which a busy machine cannot promise
		t.Errorf("%d bytes of tensors travelled as %d", raw, wire)
	}
	t.Logf("%d bytes of tensors travelled as %d", raw, wire)
}

// Gradients lose what their rule allows, and other tensors nothing.
func TestTensorFlowWithLoss(t *testing.T) {
	x, p := newCluster(t, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "int8"})
	r := rand.New(rand.NewPCG(3, 4))
	x.register()
	changed := 0
	for i := range 6 {
		x.tensors = map[string][]byte{"g": floats(r, 300_001), "h": floats(r, 20_000), "metric": floats(r, 50_000)}
		for edge, b := range x.step(uint64(i) + 1) {
			sent := x.tensors[edge]
			switch {
			case bytes.Equal(b, sent):
				continue
			case edge == "metric":
				t.Fatalf("step %d: %s has changed", i, edge)
			}
			changed++
			for k := 0; k < len(b); k += 4 {
				a, c := math.Float32frombits(binary.LittleEndian.Uint32(sent[k:])), math.Float32frombits(binary.LittleEndian.Uint32(b[k:]))
				if d := a - c; d > 0.2 || d < -0.2 {
					t.Fatalf("step %d: element %d of %s was %v, and is %v", i, k/4, edge, a, c)
				}
			}
		}
	}
	if changed < 8 {
		t.Errorf("%d gradients lost something, of 12: %+v", changed, p.Near.Tensors())
	}
}
