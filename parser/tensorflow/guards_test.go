package tensorflow

import (
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
	"github.com/gradproxy/gradproxy/tensor"
)

// A group is no field that is read here: the message with it is none from there on.
var group = []byte{1<<3 | 3}

// A graph is registered, and runs, only by messages that are whole. Two graphs in a message are merged, and nothing is
// known of the result.
func TestBrokenMessagesRegisterNothing(t *testing.T) {
	register, run := sim.RegisterGraph(sim.Session, serverPart), sim.RunGraph(sim.Session, 7)
	broken := func(b []byte) []byte { return append(b[:len(b):len(b)], group...) }
	for name, c := range map[string]struct {
		register, handle, run []byte
		want                  tensor.Role
	}{
		"whole messages":    {register, sim.Handle(), run, tensor.Gradient},
		"a broken graph":    {broken(register), sim.Handle(), run, tensor.Unknown},
		"a broken handle":   {register, broken(sim.Handle()), run, tensor.Unknown},
		"a broken run":      {register, sim.Handle(), broken(run), tensor.Unknown},
		"a graph of two":    {sim.Sub(register, 2, sim.Nodes(1, serverPart[:4])), sim.Handle(), run, tensor.Unknown},
		"a handle of a run": {register, sim.Handle(), sim.Text(sim.Number(sim.Text(nil, 1, "another"), 2, 7), 8, sim.Session), tensor.Unknown},
	} {
		j := newJob(t, 1000)
		j.forward.Unary(sim.WorkerService+"RegisterGraph", c.register, c.handle, j.frame)
		j.forward.Unary(sim.WorkerService+"RunGraph", c.run, nil, j.frame)
		j.recvTensor(j.backward, 7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), sim.Tensor(1, bytesOf(8000), 2000))
		if _, got := j.play(new(Protocol), parser.Conn{Job: "job"}); len(got) != 1 || got[0].Tensor.Role != c.want {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
}

// Of two tensors in a response the second is opaque. A shape whose product exceeds 64 bits accounts for no content.
func TestTensorsThatLie(t *testing.T) {
	g := sim.Tensor(1, bytesOf(400), 100)
	third := uint64(0xaaaaaaaaaaaaaaab) // the inverse of 3 modulo 2^64
	for name, c := range map[string]struct {
		response []byte
		want     int
	}{
		"one":           {sim.Response(g), 1},
		"two":           {sim.Sub(sim.Response(g), 1, g), 1},
		"a long shape":  {sim.Response(sim.Tensor(1, bytesOf(400), 3, 100*third)), 0},
		"a shape of -1": {sim.Response(sim.Tensor(1, bytesOf(400), 1<<64-1)), 0},
	} {
		j := newJob(t, 1000)
		j.backward.Unary(sim.WorkerService+"RecvTensor", sim.Request(7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), 1), c.response, j.frame)
		if _, got := j.play(new(Protocol), parser.Conn{}); len(got) != c.want {
			t.Errorf("%s: %d tensors, want %d", name, len(got), c.want)
		}
	}
}

// Requests without a number may be made again without a sign, so each is a new one.
func TestRequestsWithoutNumber(t *testing.T) {
	j := newJob(t, 1000)
	j.register()
	for range 2 {
		j.backward.Unary(sim.WorkerService+"RecvTensor", sim.Request(7, sim.Key(sim.Worker, sim.Server, "edge_3_g"), 0), sim.Response(sim.Tensor(1, bytesOf(8000), 2000)), j.frame)
	}
	_, got := j.play(new(Protocol), parser.Conn{Job: "job"})
	for i, s := range got {
		if s.Tensor.Role != tensor.Gradient {
			t.Errorf("tensor %d is %+v", i, s.Tensor)
		}
	}
}

// A buffer has a type only if it consists of whole elements, and it is no new value if its request has come before. One
// that is longer than asked, or than TensorFlow sends, is none.
func TestBuffersThatLie(t *testing.T) {
	pieces := func(n int) []byte { return sim.Sub(nil, 4, sim.Sub(nil, 2, sim.Sub(nil, 1, bytesOf(n)))) }
	for name, c := range map[string]struct {
		asked, come int
		again       bool
		want        []tensor.Role
	}{
		"a sum":                  {8000, 8000, false, []tensor.Role{tensor.Gradient}},
		"a sum again":            {8000, 8000, true, []tensor.Role{tensor.Gradient, tensor.Exact}},
		"a part of an element":   {8001, 8001, false, []tensor.Role{tensor.Unknown}},
		"longer than asked":      {8000, 8004, false, nil},
		"longer than may be":     {1 << 40, 8000, false, nil},
		"of no length":           {0, 8000, false, nil},
		"one byte more than all": {maxTensor + 1, 8000, false, nil},
	} {
		j := newJob(t, 3001)
		for i := range uint64(4) {
			j.forward.Unary(sim.WorkerService+"CompleteInstance", sim.Instance(typeReduce, 1, 100+i, "sum", 5000), nil, 100)
		}
		for again := range 2 {
			if again == 0 || c.again {
				j.backward.Unary(sim.WorkerService+"RecvBuf", sim.BufferRequest("1:103:0:0:0:0:1", c.asked, 9), pieces(c.come), j.frame)
			}
		}
		_, got := j.play(new(Protocol), parser.Conn{Job: "job", Sums: parser.SumsGradients})
		var roles []tensor.Role
		for _, s := range got {
			roles = append(roles, s.Tensor.Role)
		}
		if fmt.Sprint(roles) != fmt.Sprint(c.want) {
			t.Errorf("%s: roles %v, want %v", name, roles, c.want)
		}
	}
}

// A collective is known only if all that is said of it is the same: by the tasks of a peer, and by these and the tasks
// of this site.
func TestContradictionsOnCollectives(t *testing.T) {
	sum := collective{name: "sum", typ: typeReduce, number: 1}
	other := func(change func(*collective)) collective {
		c := sum
		change(&c)
		return c
	}
	cast, doubles, named := other(func(c *collective) { c.typ = typeBroadcast }), other(func(c *collective) { c.number = 2 }), other(func(c *collective) { c.name = "x" })
	for name, c := range map[string]struct {
		peers, own []collective
		want       bool
	}{
		"a peer":                     {[]collective{sum}, nil, true},
		"a peer, twice":              {[]collective{sum, sum}, nil, true},
		"both":                       {[]collective{sum}, []collective{sum}, true},
		"nobody":                     {nil, nil, false},
		"a peer, of another type":    {[]collective{sum, cast}, nil, false},
		"a peer, of another dtype":   {[]collective{sum, doubles}, nil, false},
		"a peer, of another name":    {[]collective{sum, named}, nil, false},
		"a peer, and this site":      {[]collective{sum, cast}, []collective{sum}, false},
		"this site, and a peer":      {[]collective{sum}, []collective{sum, cast}, false},
		"this site alone":            {nil, []collective{sum, cast}, false},
		"both, of two types":         {[]collective{cast}, []collective{sum}, false},
		"both, of two element types": {[]collective{doubles}, []collective{sum}, false},
		"both, of two names":         {[]collective{named}, []collective{sum}, false},
	} {
		var f facts
		sc := scope{job: "job", peer: "tokyo"}
		for _, x := range c.peers {
			f.instance(instanceID{sc, 1, 2}, x)
		}
		for _, x := range c.own {
			f.instance(instanceID{sc.ofSite(), 1, 2}, x)
		}
		if _, _, ok := f.collective(instanceID{sc, 1, 2}); ok != c.want {
			t.Errorf("%s: it is known: %v", name, ok)
		}
	}
}

// Of a step so many graphs are remembered, however many run.
func TestGraphsOfAStepAreBounded(t *testing.T) {
	var f facts
	sc := scope{peer: "tokyo"}
	for i := range uint64(3 * maxGraphs) {
		id := graphID{scope: sc, context: 1, name: i}
		f.register(id, &graph{})
		f.run(id, 7)
		f.run(id, 7)
	}
	if s, _ := f.steps.Use(sc.peer, stepID{sc, 7}); len(s.graphs) != maxGraphs {
		t.Errorf("%d graphs are remembered, want %d", len(s.graphs), maxGraphs)
	}
}
