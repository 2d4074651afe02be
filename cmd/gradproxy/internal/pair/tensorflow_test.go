package pair

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	sim "github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A cluster is a worker of TensorFlow near, and a parameter server far, which call each other by HTTP/2 with windows of 4 MiB.
type cluster struct {
	t              *testing.T
	client         *http.Client
	server, worker string // addresses at which the other calls them, through the proxies

	mu      sync.Mutex
	tensors map[string][]byte // contents that the worker has, by edge
	last    uint64            // request
}

// h2 is HTTP/2 in plain text, as gRPC speaks it, and nothing else.
func h2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// windows are as TensorFlow's are at first.
var windows = &http.HTTP2Config{MaxReceiveBufferPerStream: 4 << 20, MaxReceiveBufferPerConnection: 4 << 20, MaxReadFrameSize: 1 << 20}

func newCluster(t *testing.T, rules ...policy.Rule) (*cluster, *Pair) {
	t.Helper()
	p := start(t, Config{Rules: rules, Jobs: []proxy.Job{{Name: "job", Networks: loopback}}})
	x := &cluster{t: t, tensors: map[string][]byte{}, client: &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{Protocols: h2(), HTTP2: windows, DisableCompression: true}}}
	t.Cleanup(x.client.CloseIdleConnections)
	ps, w := x.serve(), x.serve()
	x.server = forward(t, p, ps).String()
	back, err := p.Backward(w.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	x.worker = back.String()
	return x, p
}

// serve answers calls to one process.
func (x *cluster) serve() *net.TCPListener {
	ln := listen(x.t)
	s := &http.Server{Handler: x, Protocols: h2(), HTTP2: windows}
	go s.Serve(ln)
	x.t.Cleanup(func() { s.Close() })
	return ln
}

// ServeHTTP answers a call.
func (x *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	var response []byte
	switch r.URL.Path {
	case sim.WorkerService + "RegisterGraph":
		response = sim.Handle()
	case sim.WorkerService + "RecvTensor":
		x.mu.Lock()
		for edge, content := range x.tensors {
			if bytes.Contains(request, []byte(sim.Key(sim.Worker, sim.Server, edge))) {
				response = sim.Response(sim.Tensor(1, content, uint64(len(content)/4)))
			}
		}
		x.mu.Unlock()
	}
	w.Write(grpctest.Prefixed(response))
	w.Header().Set("Grpc-Status", "0")
}

// call calls a method and returns the response.
func (x *cluster) call(addr, method string, request []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(x.t.Context(), "POST", "http://"+addr+sim.WorkerService+method, bytes.NewReader(grpctest.Prefixed(request)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	a, err := x.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		return nil, err
	}
	if a.Trailer.Get("Grpc-Status") != "0" || len(b) < 5 || int(binary.BigEndian.Uint32(b[1:])) != len(b)-5 {
		return nil, fmt.Errorf("%s: %d bytes, trailers %v", method, len(b), a.Trailer)
	}
	return b[5:], nil
}

// register registers the server's part of the graph, which takes "g" and "h" for gradients and no others.
func (x *cluster) register() {
	x.t.Helper()
	graph := []sim.Node{{Name: "w", Op: "VariableV2"}, {Name: "lr", Op: "Const"}}
	for _, edge := range []string{"g", "h"} {
		graph = append(graph, sim.Node{Name: edge, Op: "_Recv", From: sim.Worker, To: sim.Server, Edge: edge},
			sim.Node{Name: "apply/" + edge, Op: "ApplyGradientDescent", Inputs: []string{"w", "lr", edge}})
	}
	if _, err := x.call(x.server, "RegisterGraph", sim.RegisterGraph(graph)); err != nil {
		x.t.Fatal(err)
	}
}

// step runs the graph and pulls all tensors of the worker at once. It returns their contents as they arrive, and checks that all other bytes do so as they were.
func (x *cluster) step(number uint64) map[string][]byte {
	x.t.Helper()
	if _, err := x.call(x.server, "RunGraph", sim.RunGraph(number)); err != nil {
		x.t.Fatal(err)
	}
	got := map[string][]byte{}
	var all sync.WaitGroup
	for edge, content := range x.tensors {
		x.last++
		request := sim.Request(number, sim.Key(sim.Worker, sim.Server, edge), x.last)
		all.Go(func() {
			b, err := x.call(x.worker, "RecvTensor", request)
			want := sim.Response(sim.Tensor(1, content, uint64(len(content)/4)))
			head := len(want) - len(content)
			if err != nil || len(b) != len(want) || !bytes.Equal(b[:head], want[:head]) {
				x.t.Errorf("%s: %d bytes, want %d; %v", edge, len(b), len(want), err)
				return
			}
			x.mu.Lock()
			defer x.mu.Unlock()
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

// Tensors several times as large as the windows, three at a time on one connection, arrive as they were, and smaller on the way.
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
