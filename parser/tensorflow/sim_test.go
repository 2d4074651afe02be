package tensorflow

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	sim "github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
	"github.com/gradproxy/gradproxy/tensor"
)

// serverPart is the part of a graph that a parameter server runs.
var serverPart = []sim.Node{
	{Name: "w", Op: "VariableV2"},
	{Name: "w/read", Op: "Identity", Inputs: []string{"w"}},
	{Name: "send/w", Op: "_Send", Inputs: []string{"w/read", "^w"}, From: sim.Server, To: sim.Worker, Edge: "edge_1_w/read"},
	{Name: "lr", Op: "_Recv", From: sim.Worker, To: sim.Server, Edge: "edge_2_lr"},
	{Name: "g", Op: "_Recv", Inputs: []string{"^w"}, From: sim.Worker, To: sim.Server, Edge: "edge_3_g"},
	{Name: "train", Op: "ApplyGradientDescent", Inputs: []string{"w", "lr", "g"}},
	{Name: "first", Op: "_Recv", From: sim.Worker, To: sim.Server, Edge: "edge_4_Const"},
	{Name: "init", Op: "Assign", Inputs: []string{"w", "first"}},
	{Name: "rows", Op: "_Recv", From: sim.Worker, To: sim.Server, Edge: "edge_5_rows"},
	{Name: "ids", Op: "_Recv", From: sim.Worker, To: sim.Server, Edge: "edge_6_ids"},
	{Name: "times", Op: "Mul", Inputs: []string{"rows", "lr"}},
	{Name: "scatter", Op: "ScatterSub", Inputs: []string{"w", "ids", "times"}},
	{Name: "metric", Op: "_Recv", From: sim.Worker, To: sim.Server, Edge: "edge_7_Mul"},
	{Name: "total", Op: "AssignAdd", Inputs: []string{"w", "metric"}},
	{Name: "both", Op: "_Recv", From: sim.Worker, To: sim.Server, Edge: "edge_8_both"},
	{Name: "train2", Op: "ApplyGradientDescent", Inputs: []string{"w", "lr", "both"}},
	{Name: "other", Op: "Print", Inputs: []string{"both"}},
}

// A job makes the connections of a job between a worker and a parameter server.
type job struct {
	t        testing.TB
	forward  *grpctest.Wire // worker to server
	backward *grpctest.Wire
	request  uint64
	frame    int
}

func newJob(t testing.TB, frame int) *job {
	return &job{t: t, forward: grpctest.New(t), backward: grpctest.New(t), frame: frame}
}

// register registers the server's part of the graph, and runs it as step 7.
func (j *job) register() {
	j.forward.Unary(sim.WorkerService+"RegisterGraph", sim.RegisterGraph(sim.Session, serverPart), sim.Handle(), j.frame)
	j.forward.Unary(sim.WorkerService+"RunGraph", sim.RunGraph(sim.Session, 7), nil, j.frame)
}

// recvTensor pulls a tensor through a connection.
func (j *job) recvTensor(w *grpctest.Wire, step uint64, key string, proto []byte) {
	j.request++
	w.Unary(sim.WorkerService+"RecvTensor", sim.Request(step, key, j.request<<40), sim.Response(proto), j.frame)
}

var (
	workerAddr = netip.MustParseAddrPort("10.0.0.1:2223")
	serverAddr = netip.MustParseAddrPort("10.0.0.2:2222")
)

// play gives the job's connections to a Protocol, and returns the classes of the responses' bytes.
func (j *job) play(p *Protocol, c parser.Conn) (forward, backward []parsertest.Span) {
	j.t.Helper()
	c.Client, c.Server = workerAddr, serverAddr
	f, err := parsertest.Play(p, c, j.forward.Exchange(), nil)
	if err != nil {
		j.t.Fatal(err)
	}
	c.Client, c.Server = serverAddr, workerAddr
	b, err := parsertest.Play(p, c, j.backward.Exchange(), nil)
	if err != nil {
		j.t.Fatal(err)
	}
	return tensorsOf(f.Server), tensorsOf(b.Server)
}

// tensorsOf returns the spans that begin a tensor.
func tensorsOf(all []parsertest.Span) (out []parsertest.Span) {
	for _, s := range all {
		if s.Tensor.Size > 0 && s.Tensor.Off == 0 {
			out = append(out, s)
		}
	}
	return out
}

// bytesOf returns n bytes that differ.
func bytesOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

// gradients has one tensor for each edge of serverPart.
func gradients(t testing.TB, frame int) *job {
	j := newJob(t, frame)
	j.register()
	big := bytesOf(8000)
	j.recvTensor(j.forward, 7, sim.Key(sim.Server, sim.Worker, "edge_1_w/read"), sim.Tensor(1, big, 20, 100))
	j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, "edge_2_lr"), sim.Tensor(1, bytesOf(4)))
	for _, name := range []string{"edge_3_g", "edge_4_Const", "edge_5_rows", "edge_6_ids", "edge_7_Mul", "edge_8_both", "edge_9_new"} {
		dtype := uint64(1)
		if name == "edge_6_ids" {
			dtype = 3
		}
		j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, name), sim.Tensor(dtype, big, 20, 100))
	}
	j.recvTensor(j.backward, 8, sim.Key(sim.Worker, sim.Server, "edge_3_g"), sim.Tensor(1, big, 20, 100)) // of a step that is not known
	return j
}

// The graph gives tensors their roles, and the step joins the two, in a job that is configured or not.
func TestRolesByGraph(t *testing.T) {
	for _, c := range []parser.Conn{{Job: "job"}, {Peer: "tokyo"}, {Job: "job", Sums: parser.SumsGradients}} {
		forward, backward := gradients(t, 1000).play(new(Protocol), c)
		metric := tensor.Unknown
		if c.Sums == parser.SumsGradients {
			metric = tensor.Gradient
		}
		if len(forward) != 1 || forward[0].Tensor.Role != tensor.State || forward[0].Tensor.Base == 0 {
			t.Errorf("%+v: a variable is %+v", c, forward)
		}
		want := []tensor.Role{tensor.Unknown, tensor.Gradient, tensor.State, tensor.Gradient, tensor.Exact, metric, tensor.Unknown, tensor.Unknown, tensor.Unknown}
		if len(backward) != len(want) {
			t.Fatalf("%+v: %d tensors", c, len(backward))
		}
		for i, s := range backward {
			if s.Tensor.Role != want[i] || s.Tensor.Role == tensor.Gradient && s.Tensor.Base != 0 {
				t.Errorf("%+v: tensor %d is %+v, want %v", c, i, s.Tensor, want[i])
			}
		}
		if g := backward[1].Tensor; g.Proof != tensor.ByUpdate || g.Keys != 0 || g.DType != tensor.Float32 || g.Why != tensor.OK {
			t.Errorf("the gradient is %+v", g)
		}
		if g := backward[3].Tensor; g.Proof != tensor.ByWire || g.Keys == 0 {
			t.Errorf("the rows are %+v", g)
		}
	}
}

// Facts do not cross jobs, nor peers.
func TestFactsStayInTheirJob(t *testing.T) {
	for name, c := range map[string][2]parser.Conn{
		"two jobs":         {{Job: "a"}, {Job: "b"}},
		"two peers":        {{Peer: "a"}, {Peer: "b"}},
		"a job and a peer": {{Job: "a"}, {Peer: "a"}},
		"peers of a job":   {{Job: "a", Peer: "a"}, {Job: "a", Peer: "b"}},
	} {
		p := new(Protocol)
		j := newJob(t, 1000)
		j.register()
		j.play(p, c[0])
		j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), sim.Tensor(1, bytesOf(8000), 2000))
		j.forward = grpctest.New(t)
		if _, got := j.play(p, c[1]); len(got) != 1 || got[0].Tensor.Role != tensor.Unknown {
			t.Errorf("%s: %+v", name, got)
		}
		j.request = 10
		j.backward = grpctest.New(t)
		j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), sim.Tensor(1, bytesOf(8000), 2000))
		if _, got := j.play(p, c[0]); len(got) != 1 || got[0].Tensor.Role != tensor.Gradient {
			t.Errorf("%s, a new connection of the first: %+v", name, got)
		}
	}
}

// An answer to a request that has come before holds no new value; a dead tensor holds none.
func TestAnswersWithoutValue(t *testing.T) {
	j := newJob(t, 1000)
	j.register()
	g := sim.Tensor(1, bytesOf(8000), 2000)
	j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), g)
	j.request--
	j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), g)
	request := sim.Number(sim.Text(sim.Number(nil, 1, 7), 2, sim.Key(sim.Worker, sim.Server, "edge_3_g")), 7, 99)
	j.backward.Unary(sim.WorkerService+"RecvTensor", request, sim.Sub(sim.Number(nil, 2, 1), 1, g), 1000)
	_, got := j.play(new(Protocol), parser.Conn{Job: "job"})
	for i, want := range []tensor.Role{tensor.Gradient, tensor.Exact, tensor.Exact} {
		if got[i].Tensor.Role != want {
			t.Errorf("tensor %d is %+v, want %v", i, got[i].Tensor, want)
		}
	}
}

// A function of TensorFlow 2 is registered and run by the coordinator's sim.Worker, and its steps have negative
// numbers.
func TestFunctions(t *testing.T) {
	j := newJob(t, 700)
	function := sim.Sub(nil, 1, sim.Text(nil, 1, "__inference_step_1"))
	for _, n := range serverPart {
		function = sim.Sub(function, 3, n.Proto())
	}
	item := sim.Sub(nil, 4, sim.Number(sim.Sub(nil, 1, function), 2, 1))
	const step = 1<<64 - 5
	eager := "/tensorflow.eager.EagerService/"
	value := sim.Sub(nil, 3, sim.Sub(nil, 3, sim.Sub(sim.Number(nil, 1, 3), 2, sim.Tensor(1, bytesOf(400), 100))))
	j.forward.Unary(eager+"Enqueue", append(sim.Sub(sim.Fixed(nil, 1, 77), 3, item), value...), nil, j.frame)
	j.forward.Unary(eager+"RunComponentFunction", sim.Sub(sim.Fixed(nil, 1, 77), 2, sim.Number(sim.Text(nil, 2, "__inference_step_1"), 8, step)), nil, j.frame)
	j.recvTensor(j.backward, step, sim.Key(sim.Worker, sim.Server, "edge_3_g"), sim.Tensor(19, bytesOf(8000), 4000))
	p := new(Protocol)
	_, got := j.play(p, parser.Conn{})
	if len(got) != 1 || got[0].Tensor.Role != tensor.Gradient || got[0].Tensor.DType != tensor.Float16 {
		t.Errorf("%+v", got)
	}
	c := parser.Conn{Client: workerAddr, Server: serverAddr}
	classes, err := parsertest.Play(new(Protocol), c, j.forward.Exchange(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if all := tensorsOf(classes.Client); len(all) != 1 || all[0].Tensor.Role != tensor.Exact || all[0].Tensor.Size != 400 {
		t.Errorf("a value that is sent is %+v", all)
	}
}

// recvBuf pulls a buffer.
func (j *job) recvBuf(key string, content []byte) {
	j.request++
	j.backward.Unary(sim.WorkerService+"RecvBuf", sim.BufferRequest(key, len(content), j.request), sim.BufferResponse(content), j.frame)
}

// The pieces of a buffer are one tensor. Without the user's word a sum has no role; with it, sums have theirs from the
// third on.
func TestCollectives(t *testing.T) {
	for _, sums := range []parser.Sums{parser.SumsProved, parser.SumsGradients} {
		j := newJob(t, 3001)
		j.forward.Unary(sim.WorkerService+"CompleteInstance", sim.Instance(typeBroadcast, 1, 50, "CollectiveBcastRecv: Broadcast(0)", 2500), nil, 100)
		j.recvBuf("1:50:0:0:0:0:1", bytesOf(10000))
		want := []tensor.Role{tensor.Exact}
		for i := range uint64(4) {
			j.forward.Unary(sim.WorkerService+"CompleteInstance", sim.Instance(typeReduce, 1, 100+i, "CollectiveReduceV2: ReduceV2(Add,Id)", 5000), nil, 100)
		}
		for i := range 4 {
			for pass := range 2 {
				j.recvBuf(fmt.Sprintf("1:%d:0:0:%d:0:1", 100+i, pass), bytesOf(10000))
			}
			roles := []tensor.Role{tensor.Unknown, tensor.Unknown}
			if sums == parser.SumsGradients {
				roles = []tensor.Role{tensor.Gradient, tensor.Aggregate}
			}
			want = append(want, roles...)
		}
		j.recvBuf("1:999:0:0:0:0:1", bytesOf(10000)) // of an instance that nobody has told
		want = append(want, tensor.Unknown)
		_, got := j.play(new(Protocol), parser.Conn{Job: "job", Sums: sums})
		if len(got) != len(want) {
			t.Fatalf("%d tensors", len(got))
		}
		keys := map[uint64]int{}
		for i, s := range got {
			if x := s.Tensor; x.Role != want[i] || x.Size != 10000 || (x.DType == tensor.Float32) != (i < len(got)-1) {
				t.Errorf("%v: tensor %d is %+v, want %v", sums, i, x, want[i])
			}
			keys[s.Tensor.Key]++
		}
		if len(keys) != 4 { // a broadcast, two passes, and the unknown one
			t.Errorf("%d keys of %v", len(keys), keys)
		}
	}
}

// What tasks of this site tell their leader of a collective holds for all peers of the job; what another peer's tasks
// tell holds for that peer alone, and what contradicts a peer holds for none.
func TestCollectivesBySite(t *testing.T) {
	announced := func(name string) *job {
		j := newJob(t, 3001)
		for i := range uint64(4) {
			j.forward.Unary(sim.WorkerService+"CompleteInstance", sim.Instance(typeReduce, 1, 100+i, name, 5000), nil, 100)
		}
		return j
	}
	c := parser.Conn{Job: "job", Sums: parser.SumsGradients}
	for name, tc := range map[string]struct {
		said  []parser.Conn // by peer, and the side of this site; the client tells
		names []string
		want  tensor.Role
	}{
		"a task here":             {[]parser.Conn{{Peer: "mallory", Own: parser.Client}}, []string{"sum"}, tensor.Gradient},
		"the peer's":              {[]parser.Conn{{Peer: "tokyo", Own: parser.Server}}, []string{"sum"}, tensor.Gradient},
		"another peer's":          {[]parser.Conn{{Peer: "mallory", Own: parser.Server}}, []string{"sum"}, tensor.Unknown},
		"both alike":              {[]parser.Conn{{Peer: "tokyo", Own: parser.Server}, {Peer: "osaka", Own: parser.Client}}, []string{"sum", "sum"}, tensor.Gradient},
		"both, and not alike":     {[]parser.Conn{{Peer: "tokyo", Own: parser.Server}, {Peer: "osaka", Own: parser.Client}}, []string{"sum", "other"}, tensor.Unknown},
		"another peer, not alike": {[]parser.Conn{{Peer: "tokyo", Own: parser.Server}, {Peer: "mallory", Own: parser.Server}}, []string{"sum", "other"}, tensor.Gradient},
	} {
		p := new(Protocol)
		for i, by := range tc.said {
			by.Job, by.Sums = c.Job, c.Sums
			announced(tc.names[i]).play(p, by)
		}
		j := newJob(t, 3001)
		for i := range 4 {
			j.recvBuf(fmt.Sprintf("1:%d:0:0:%d:0:1", 100+i, 0), bytesOf(10000))
		}
		c.Peer = "tokyo"
		if _, got := j.play(p, c); len(got) != 4 || got[3].Tensor.Role != tc.want {
			t.Errorf("%s: %+v, want %v", name, got, tc.want)
		}
	}
}

// Every byte of a tensor is one of it, whatever frames it lies in, and other responses' bytes in between.
func TestInterleavedTensors(t *testing.T) {
	w := grpctest.New(t)
	var bodies [2][]byte
	var ids [2]uint32
	for i, name := range []string{"edge_1_a", "edge_2_b"} {
		ids[i] = w.Call(sim.WorkerService + "RecvTensor")
		w.Message(parser.Client, ids[i], sim.Number(sim.Text(sim.Number(nil, 1, 7), 2, sim.Key(sim.Worker, sim.Server, name)), 7, uint64(i)+1), 1000)
		w.Respond(ids[i])
		bodies[i] = grpctest.Prefixed(sim.Sub(sim.Number(nil, 3, 1), 1, sim.Tensor(1, bytesOf(40000), 10000)))
	}
	for len(bodies[0])+len(bodies[1]) > 0 {
		for i := range bodies {
			n := min(1001+i, len(bodies[i]))
			w.Data(parser.Server, ids[i], bodies[i][:n], false)
			bodies[i] = bodies[i][n:]
		}
	}
	c := parser.Conn{Client: serverAddr, Server: workerAddr}
	classes, err := parsertest.Play(new(Protocol), c, w.Exchange(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]int{}
	for _, s := range classes.Server {
		if s.Tensor.Size > 0 {
			if s.Tensor.Off != got[s.Tensor.Key] {
				t.Fatalf("%+v after %d bytes", s.Tensor, got[s.Tensor.Key])
			}
			got[s.Tensor.Key] += s.Len
		}
	}
	if len(got) != 2 {
		t.Fatalf("%d keys", len(got))
	}
	for k, n := range got {
		if n != 40000 {
			t.Errorf("%d bytes of tensor %x", n, k)
		}
	}
}

// Two tensors of one key that are under way at once: the second is opaque. When the first is reset, its key is free.
func TestOneKeyAtATime(t *testing.T) {
	w := grpctest.New(t)
	body := grpctest.Prefixed(sim.Sub(nil, 1, sim.Tensor(1, bytesOf(4000), 1000)))
	open := func(id uint64) uint32 {
		n := w.Call(sim.WorkerService + "RecvTensor")
		w.Message(parser.Client, n, sim.Number(sim.Text(sim.Number(nil, 1, 7), 2, sim.Key(sim.Worker, sim.Server, "edge_1_a")), 7, id), 1000)
		w.Respond(n)
		return n
	}
	a, b := open(1), open(2)
	w.Data(parser.Server, a, body[:1000], false)
	w.Data(parser.Server, b, body, false)
	w.Raw(parser.Client, []byte{0, 0, 4, 3, 0, 0, 0, 0, byte(a), 0, 0, 0, 8})
	w.Data(parser.Server, open(3), body, false)
	classes, err := parsertest.Play(new(Protocol), parser.Conn{}, w.Exchange(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range classes.Server {
		if s.Tensor.Size > 0 {
			n += s.Len
		}
	}
	if want := 4000 + 1000 - (len(body) - 4000); n != want {
		t.Errorf("%d bytes of tensors, want %d", n, want)
	}
}

// What is not as the framework writes it is opaque.
func TestOtherForms(t *testing.T) {
	content := bytesOf(400)
	for name, proto := range map[string][]byte{
		"strings":                 sim.Tensor(7, content, 100),
		"another length":          sim.Tensor(1, content, 99),
		"a length too large":      sim.Tensor(1, content, 1<<40, 1<<40),
		"an unknown type":         sim.Tensor(77, content, 100),
		"content before its type": sim.Number(sim.Sub(nil, fieldContent, content), fieldDType, 1),
		"too few values":          list(1, fieldFloats, content, 101),
		"values of another type":  list(1, fieldDoubles, content, 100),
		"a list of integers":      list(3, 7, content, 100),
		"a group":                 append([]byte{3<<3 | 3}, sim.Tensor(1, content, 100)...),
		"an empty tensor":         sim.Tensor(1, nil, 0, 5),
	} {
		j := newJob(t, 1000)
		j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), proto)
		if _, got := j.play(new(Protocol), parser.Conn{}); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	j := newJob(t, 1000)
	j.recvTensor(j.backward, 7, "edge_3_g", sim.Tensor(1, content, 100))
	if _, got := j.play(new(Protocol), parser.Conn{}); len(got) != 0 {
		t.Errorf("a key of one part: %+v", got)
	}
}

// list returns a TensorProto with a packed list of values in place of a content.
func list(dtype uint64, field protowire.Number, values []byte, dims ...uint64) []byte {
	return sim.Sub(sim.Sub(sim.Number(nil, fieldDType, dtype), fieldShape, sim.Shape(dims...)), field, values)
}

// Packed lists of floats and of doubles that the shape accounts for are tensors, whatever the graph says of their edge:
// they lie as a content does.
func TestListsOfValues(t *testing.T) {
	content := bytesOf(400)
	for _, c := range []struct {
		proto []byte
		want  tensor.DType
	}{{list(1, fieldFloats, content, 20, 5), tensor.Float32}, {list(2, fieldDoubles, content, 50), tensor.Float64}} {
		j := newJob(t, 100)
		j.register()
		j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), c.proto)
		_, got := j.play(new(Protocol), parser.Conn{Job: "job"})
		if len(got) != 1 || got[0].Tensor.Role != tensor.Exact || got[0].Tensor.DType != c.want || got[0].Tensor.Size != len(content) || got[0].Tensor.Key == 0 {
			t.Errorf("%v: %+v", c.want, got)
		}
	}
}

// The vectors of the framework's own encoder.
func TestVectors(t *testing.T) {
	got := append(sim.Number(nil, 3, 1700000000000000), sim.Sub(nil, 1, sim.Tensor(1, make([]byte, 24), 2, 3))...)
	want := append([]byte{0x18, 0x80, 0x80, 0xf9, 0xc0, 0xc1, 0xc4, 0x82, 0x03, 0x0a, 0x26, 0x08, 0x01, 0x12, 0x08, 0x12, 0x02, 0x08, 0x02, 0x12, 0x02, 0x08, 0x03, 0x22, 0x18}, make([]byte, 24)...)
	if !bytes.Equal(got, want) {
		t.Fatalf("%x", got)
	}
	for size := 1; size < 40; size++ {
		j := newJob(t, size)
		j.backward.Unary(sim.WorkerService+"RecvTensor", sim.Text(nil, 2, sim.Key(sim.Worker, sim.Server, "edge_3_g")), want, size)
		if _, all := j.play(new(Protocol), parser.Conn{}); len(all) != 1 || all[0].Tensor.Size != 24 || all[0].Tensor.DType != tensor.Float32 {
			t.Errorf("in frames of %d bytes: %+v", size, all)
		}
	}
}

// The promises of package parser hold, in frames of any size.
func TestConformance(t *testing.T) {
	small := gradients(t, 300)
	large := gradients(t, 1<<20)
	parsertest.Run(t, func() parser.Protocol { return new(Protocol) }, parser.Conn{Job: "job"},
		small.forward.Exchange(), small.backward.Exchange(), large.backward.Exchange(), both(t))
}

// both has a graph, gradients and a collective on one connection.
func both(t testing.TB) parsertest.Exchange {
	j := newJob(t, 500)
	j.backward = j.forward
	j.register()
	j.recvTensor(j.forward, 7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), sim.Tensor(1, bytesOf(5000), 1250))
	j.forward.Unary(sim.WorkerService+"CompleteInstance", sim.Instance(typeReduce, 1, 100, "sum", 1250), nil, 100)
	j.recvBuf("1:100:0:0:0:0:1", bytesOf(5000))
	return j.forward.Exchange()
}

// A graph that is too large, and more graphs than may be under way, are given up, and cost no more than the limit.
func TestGraphsAreBounded(t *testing.T) {
	f := new(facts)
	var all []*build
	for range maxBuilding + 1 {
		all = append(all, f.begin(""))
	}
	if !all[0].failed || all[1].failed || len(f.building) != maxBuilding {
		t.Errorf("%d graphs are under way", len(f.building))
	}
	b := all[1]
	for i := range 1 << 20 {
		b.node()
		b.named([]byte(fmt.Sprint("a node with a name that is rather long, number ", i)))
		b.operation("_Recv")
	}
	if !b.failed || b.nodes != nil || b.finish() != nil {
		t.Errorf("a graph of %d bytes", b.cost)
	}
	for i := range 3000 {
		nodes := make([]node, 300)
		for k := range nodes {
			nodes[k] = node{op: op{receive, 0}, edge: rendezvous{name: fmt.Sprint(k)}}
		}
		id := graphID{name: uint64(i)}
		f.register(id, edgesOf(nodes))
		f.run(id, 7)
	}
	if n := f.graphs.Of("").Len(); f.graphs.Len() > maxEdges || n > maxEdges/(300*perEdge) || n < 500 {
		t.Errorf("%d bytes of %d graphs", f.graphs.Len(), n)
	}
}

// Graphs whose calls have no answer take bounded memory together, and the newest has its answer.
func TestGraphsThatWaitAreBounded(t *testing.T) {
	f := new(facts)
	var last *grpc.Stream
	for range 100 {
		last = new(grpc.Stream)
		f.await("", last, waiting{&graph{size: maxEdges / 10}, 7})
	}
	if n := f.waiting.Of("").Len(); f.waiting.Len() > maxEdges || n != 10 {
		t.Errorf("%d bytes of %d graphs wait", f.waiting.Len(), n)
	}
	if w, ok := f.awaited("", last); !ok || w.session != 7 {
		t.Errorf("%+v, %t", w, ok)
	}
	if _, ok := f.awaited("", last); ok || f.waiting.Len() != 9*(maxEdges/10) {
		t.Errorf("a graph is given twice, or %d bytes are left", f.waiting.Len())
	}
}

// A peer that tells facts without end has its own forgotten, and none of another peer's, whatever jobs they are of.
func TestFloodOfAPeerForgetsNothingOfOthers(t *testing.T) {
	f := new(facts)
	tokyo := scope{job: "job", peer: "tokyo"}
	ours := graphID{scope: tokyo, name: 1}
	f.register(ours, &graph{size: 1 << 10})
	f.run(ours, 7)
	f.repeated(tokyo, 1)
	f.instance(instanceID{tokyo, 1, 1}, collective{typ: typeReduce, name: "sum"})
	building, stream := f.begin("tokyo"), new(grpc.Stream)
	f.await("tokyo", stream, waiting{&graph{size: 1 << 10}, 7})
	for i := range uint64(2 * maxRequests) {
		flood := scope{job: fmt.Sprint("job", i%2), peer: "osaka"}
		id := graphID{scope: flood, name: i}
		f.register(id, &graph{size: 1 << 14})
		f.run(id, i)
		f.repeated(flood, 1+i)
		f.instance(instanceID{flood, 1, i}, collective{typ: typeReduce, name: fmt.Sprint("sum", i)})
		f.begin("osaka")
		f.await("osaka", new(grpc.Stream), waiting{&graph{size: 1 << 14}, 7})
	}
	for what, x := range map[string]struct{ has, limit int }{"steps": {f.steps.Len(), maxRuns}, "requests": {f.requests.Len(), maxRequests}, "instances": {f.instances.Len(), maxInstances},
		"collectives": {f.collectives.Len(), maxCollectives}, "graphs": {f.graphs.Len() >> 14, maxEdges>>14 - 1}, "waiting": {f.waiting.Len() >> 14, maxEdges>>14 - 1}, "building": {len(f.building), maxBuilding}} {
		if x.has != x.limit {
			t.Errorf("%d %s, want the limit %d, or the flood is none", x.has, what, x.limit)
		}
	}
	_, step := f.steps.Use("tokyo", stepID{tokyo, 7})
	_, graph := f.graphs.Use("tokyo", ours)
	_, calls, instance := f.collective(instanceID{tokyo, 1, 1})
	_, waits := f.awaited("tokyo", stream)
	if !step || !graph || !f.repeated(tokyo, 1) || !instance || calls != 1 || !waits || building.failed {
		t.Errorf("of the other peer's there are: step %v, graph %v, collective %v of %d calls, graph that waits %v; the one under way was given up: %v", step, graph, instance, calls, waits, building.failed)
	}
}

// A graph with loops and many paths is walked in bounded time.
func TestWalksEnd(t *testing.T) {
	const n = 3000
	nodes := make([]node, n)
	nodes[0] = node{op: op{receive, 0}}
	for i := 1; i < n; i++ {
		nodes[i] = node{op: op{same, -1}}
		for k := range 20 {
			nodes[i].inputs = append(nodes[i].inputs, int32((i*k)%n))
		}
	}
	g := edgesOf(nodes)
	if r := g.received[rendezvous{}]; r != unclear {
		t.Errorf("role %d", r)
	}
}

// Many tensors whose source is sought in a loop are given up together.
func TestSourcesInLoopsEnd(t *testing.T) {
	nodes := []node{{op: op{same, -1}, inputs: []int32{1}}, {op: op{same, -1}, inputs: []int32{0}}}
	for range 100_000 {
		nodes = append(nodes, node{op: op{send, 0}, inputs: []int32{0}})
	}
	w := walk{nodes: nodes}
	for _, x := range nodes[2:] {
		if r := w.source(x); r != unclear {
			t.Fatalf("role %d", r)
		}
	}
	if limit := maxFromEdges + len(nodes); w.total > limit {
		t.Errorf("%d inputs were looked at, want at most %d", w.total, limit)
	}
}

// The pieces of a buffer that is shorter than asked wait for no more: nobody knows that there will be none.
func TestShortBuffers(t *testing.T) {
	j := newJob(t, 1<<20)
	j.request++
	j.backward.Unary(sim.WorkerService+"RecvBuf", sim.BufferRequest("1:50:0:0:0:0:1", 10000, j.request), sim.BufferResponse(bytesOf(4000)), j.frame)
	_, got := j.play(new(Protocol), parser.Conn{Job: "job"})
	if len(got) == 0 || got[0].Tensor.Size != 10000 {
		t.Fatalf("%+v", got)
	}
	for _, s := range got {
		if s.Tensor.Hold != 0 {
			t.Errorf("at %d of %d bytes, of which 4000 come, %d are promised", s.Tensor.Off, s.Tensor.Size, s.Tensor.Hold)
		}
	}
}

// No bytes make a parser panic, break the contract, or depend on how they are cut.
func FuzzNext(f *testing.F) {
	f.Add(parsertest.Fold(both(f)), true)
	f.Add(parsertest.Fold(gradients(f, 400).backward.Exchange()), false)
	f.Fuzz(func(t *testing.T, b []byte, sums bool) {
		c := parser.Conn{Job: "job", Client: workerAddr, Server: serverAddr}
		if sums {
			c.Sums = parser.SumsGradients
		}
		parsertest.AnyCut(t, func() parser.Protocol { return new(Protocol) }, c, parsertest.Unfold(b))
	})
}

// No messages make a Message panic or depend on how they are cut: the fuzzer writes the messages, and the frames are
// right.
func FuzzMessages(f *testing.F) {
	f.Add(uint8(3), sim.Sub(sim.Text(nil, 1, "session"), 2, sim.Nodes(1, serverPart)), sim.Text(nil, 1, "handle"))
	f.Add(uint8(0), sim.Text(sim.Number(nil, 1, 7), 2, sim.Key(sim.Worker, sim.Server, "edge_3_g")), sim.Sub(nil, 1, sim.Tensor(1, bytesOf(400), 100)))
	f.Add(uint8(6), sim.Sub(sim.Fixed(nil, 1, 77), 3, sim.Sub(nil, 3, sim.Sub(nil, 2, sim.Tensor(1, bytesOf(400), 100)))), []byte(nil))
	methods := []string{sim.WorkerService + "RecvTensor", sim.WorkerService + "RecvBuf", sim.WorkerService + "CompleteInstance", sim.WorkerService + "RegisterGraph",
		sim.WorkerService + "RunGraph", "/tensorflow.MasterService/RunStep", "/tensorflow.eager.EagerService/Enqueue", "/tensorflow.eager.EagerService/RunComponentFunction"}
	f.Fuzz(func(t *testing.T, method uint8, request, response []byte) {
		w := grpctest.New(t)
		for range 2 {
			w.Unary(methods[int(method)%len(methods)], request, response, 97)
		}
		parsertest.AnyCut(t, func() parser.Protocol { return new(Protocol) }, parser.Conn{Job: "job", Sums: parser.SumsGradients}, w.Exchange())
	})
}

// A value that a variable is renewed with, made of its last value and a received one, is an update. A value made of
// another variable, or of nothing else, is none.
func TestRenewedVariables(t *testing.T) {
	const m, other, read, g, scaled, sum, assign = 0, 1, 2, 3, 4, 5, 6
	for name, c := range map[string]struct {
		from int32 // the variable whose value is read
		to   int32 // the variable that is assigned
		want edgeRole
	}{
		"of its own": {m, m, update},
		"of another": {other, m, unclear},
	} {
		nodes := make([]node, 7)
		nodes[read] = node{op: ops["ReadVariableOp"], inputs: []int32{c.from}}
		nodes[g] = node{op: ops["_Recv"], edge: rendezvous{name: "g"}}
		nodes[scaled] = node{op: ops["Mul"], inputs: []int32{g, other}}
		nodes[sum] = node{op: ops["Sub"], inputs: []int32{read, scaled}}
		nodes[assign] = node{op: ops["AssignVariableOp"], inputs: []int32{c.to, sum}}
		if got := edgesOf(nodes).received[rendezvous{name: "g"}]; got != c.want {
			t.Errorf("%s: role %d, want %d", name, got, c.want)
		}
	}
}

// Whatever the connections of other jobs, and of other peers of the same job, show, no byte of a connection changes its
// class.
func FuzzFactsOfOthers(f *testing.F) {
	graph := gradients(f, 400)
	seeds := []parsertest.Exchange{both(f), graph.backward.Exchange(), graph.forward.Exchange()}
	for _, x := range seeds {
		f.Add(parsertest.Fold(x), true)
		f.Add(parsertest.Fold(x), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, named bool) {
		victim := parser.Conn{Job: "job", Sums: parser.SumsGradients, Client: workerAddr, Server: serverAddr}
		if !named {
			victim.Job = ""
		}
		for _, x := range seeds {
			parsertest.Apart(t, true, func() parser.Protocol { return new(Protocol) }, victim, x, parsertest.Unfold(b), netip.AddrPortFrom(netip.MustParseAddr("10.0.9.9"), 1), victim.Server)
		}
	})
}
