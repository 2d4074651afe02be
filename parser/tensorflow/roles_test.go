package tensorflow

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A drawn node names its operation, and its inputs by their index in the graph.
type drawn struct {
	op     string
	inputs []int32
}

// A tensor that a graph receives has a role only if all its uses say the same, and each of them takes the tensor's own
// elements: one step of arithmetic, another input or another use makes it something else.
func TestRolesOfReceivedTensors(t *testing.T) {
	const at = 1 // node 0 is a variable, node 1 the tensor that is received
	for name, c := range map[string]struct {
		nodes []drawn
		want  edgeRole
	}{
		"a gradient":                      {[]drawn{{"ApplyGradientDescent", []int32{0, 0, at}}}, gradient},
		"an accumulator's":                {[]drawn{{"AccumulatorApplyGradient", []int32{0, 0, at}}}, gradient},
		"a gradient in another form":      {[]drawn{{"Cast", []int32{at}}, {"Reshape", []int32{2, 0}}, {"ResourceApplyAdam", []int32{0, 0, 0, 0, 0, 0, 0, 0, 0, 3}}}, gradient},
		"a gradient, and its shape":       {[]drawn{{"Shape", []int32{at}}, {"ApplyGradientDescent", []int32{0, 0, at}}}, gradient},
		"a learning rate":                 {[]drawn{{"ApplyGradientDescent", []int32{0, at, 0}}}, unclear},
		"a shape for another tensor":      {[]drawn{{"Reshape", []int32{0, at}}, {"ApplyGradientDescent", []int32{0, 0, 2}}}, unclear},
		"a gradient and a learning rate":  {[]drawn{{"ApplyGradientDescent", []int32{0, at, at}}}, unclear},
		"a gradient that is printed":      {[]drawn{{"ApplyGradientDescent", []int32{0, 0, at}}, {"Print", []int32{at}}}, unclear},
		"a gradient that is sent on":      {[]drawn{{"ApplyGradientDescent", []int32{0, 0, at}}, {"_Send", []int32{at}}}, unclear},
		"a gradient that is assigned":     {[]drawn{{"ApplyGradientDescent", []int32{0, 0, at}}, {"Assign", []int32{0, at}}}, unclear},
		"a part of a gradient":            {[]drawn{{"Mul", []int32{at, 0}}, {"ApplyGradientDescent", []int32{0, 0, 2}}}, update},
		"a gradient's square":             {[]drawn{{"Square", []int32{at}}, {"ApplyGradientDescent", []int32{0, 0, 2}}}, update},
		"rows":                            {[]drawn{{"SparseApplyMomentum", []int32{0, 0, 0, at}}}, rows},
		"sums of rows":                    {[]drawn{{"UnsortedSegmentSum", []int32{at, 0, 0}}, {"SparseApplyMomentum", []int32{0, 0, 0, 2}}}, rows},
		"the numbers of summed rows":      {[]drawn{{"UnsortedSegmentSum", []int32{0, at, 0}}, {"SparseApplyMomentum", []int32{0, 0, 0, 2}}}, unclear},
		"scaled rows of an optimizer":     {[]drawn{{"Neg", []int32{at}}, {"SparseApplyMomentum", []int32{0, 0, 0, 2}}}, update},
		"rows and a gradient":             {[]drawn{{"SparseApplyMomentum", []int32{0, 0, 0, at}}, {"ApplyGradientDescent", []int32{0, 0, at}}}, unclear},
		"rows that are subtracted":        {[]drawn{{"ScatterSub", []int32{0, 0, at}}}, descent},
		"scaled rows that are subtracted": {[]drawn{{"Mul", []int32{at, 0}}, {"ScatterSub", []int32{0, 0, 2}}}, descent},
		"the roots of such rows":          {[]drawn{{"Sqrt", []int32{at}}, {"ScatterSub", []int32{0, 0, 2}}}, update},
		"a divisor of such rows":          {[]drawn{{"RealDiv", []int32{0, at}}, {"ScatterSub", []int32{0, 0, 2}}}, unclear},
		"a sum of metrics":                {[]drawn{{"AssignAdd", []int32{0, at}}}, update},
		"a value":                         {[]drawn{{"Assign", []int32{0, at}}}, assigned},
		"a multiple of a value":           {[]drawn{{"Mul", []int32{at, 0}}, {"Assign", []int32{0, 2}}}, unclear},
		"a function of a value":           {[]drawn{{"Sqrt", []int32{at}}, {"Assign", []int32{0, 2}}}, unclear},
		"a part of a variable's new one":  {[]drawn{{"Add", []int32{at, 0}}, {"Assign", []int32{0, 2}}}, update},
		"an assignment without a value":   {[]drawn{{"Sqrt", []int32{at}}, {"Assign", []int32{2}}}, unclear},
		"nothing":                         {nil, unclear},
	} {
		nodes := []node{{op: ops["VariableV2"]}, {op: ops["_Recv"], edge: rendezvous{name: "x"}}}
		for _, d := range c.nodes {
			nodes = append(nodes, node{op: ops[d.op], inputs: d.inputs, edge: rendezvous{name: "sent"}})
		}
		if got := edgesOf(nodes).received[rendezvous{name: "x"}]; got != c.want {
			t.Errorf("%s: role %d, want %d", name, got, c.want)
		}
	}
}

// A tensor that a graph sends is weights only if it is a variable's value, or rows of it, as they are.
func TestRolesOfSentTensors(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []drawn // node 0 is a variable, node 1 something that nobody knows; the last one is sent
		want  edgeRole
	}{
		"a variable":                {[]drawn{{"Identity", []int32{0}}}, read},
		"a variable of a handle":    {[]drawn{{"ReadVariableOp", []int32{1}}}, read},
		"rows":                      {[]drawn{{"GatherV2", []int32{0, 1, 1}}}, gathered},
		"rows of a handle":          {[]drawn{{"ResourceGather", []int32{1, 1}}}, gathered},
		"rows of a variable's read": {[]drawn{{"Identity", []int32{0}}, {"Gather", []int32{2, 1}}}, gathered},
		"rows of a sum":             {[]drawn{{"Add", []int32{0, 0}}, {"Gather", []int32{2, 1}}}, unclear},
		"rows of nothing":           {[]drawn{{"Gather", nil}}, unclear},
		"rows of an unknown value":  {[]drawn{{"GatherV2", []int32{1, 1, 1}}}, unclear},
		"rows without an axis":      {[]drawn{{"Gather", []int32{1, 1}}}, unclear},
		"one output of several":     {[]drawn{{"IdentityN", []int32{0, 1}}}, unclear},
		"the only output":           {[]drawn{{"IdentityN", []int32{0}}}, read},
		"rows of rows":              {[]drawn{{"ResourceGather", []int32{1, 1}}, {"GatherV2", []int32{2, 1, 1}}}, gathered},
		"another form":              {[]drawn{{"Cast", []int32{0}}}, unclear},
		"a multiple":                {[]drawn{{"Mul", []int32{0, 0}}}, unclear},
		"an unknown value":          {[]drawn{{"Identity", []int32{1}}}, unclear},
		"nothing":                   {[]drawn{{"Identity", nil}}, unclear},
	} {
		nodes := []node{{op: ops["VariableV2"]}, {}}
		for _, d := range c.nodes {
			nodes = append(nodes, node{op: ops[d.op], inputs: d.inputs})
		}
		nodes = append(nodes, node{op: ops["_Send"], inputs: []int32{int32(len(nodes) - 1)}, edge: rendezvous{name: "x"}})
		if got := edgesOf(nodes).sent[rendezvous{name: "x"}]; got != c.want {
			t.Errorf("%s: role %d, want %d", name, got, c.want)
		}
	}
}

// All graphs of a step must agree on an edge, at both of its ends. An edge that one graph names twice has the role of
// both.
func TestGraphsOfAStepAgree(t *testing.T) {
	type ends struct{ sent, received []edgeRole } // one of each graph
	sc, e := scope{peer: "tokyo"}, rendezvous{name: "x"}
	for name, c := range map[string]struct {
		ends
		want edgeRole
	}{
		"a gradient":                    {ends{received: []edgeRole{gradient}}, gradient},
		"a gradient of two graphs":      {ends{received: []edgeRole{gradient, gradient}}, gradient},
		"a gradient that one computes":  {ends{sent: []edgeRole{unclear}, received: []edgeRole{gradient}}, gradient},
		"another use":                   {ends{received: []edgeRole{gradient, unclear}}, unclear},
		"two uses":                      {ends{received: []edgeRole{gradient, assigned}}, unclear},
		"rows and a gradient":           {ends{received: []edgeRole{gradient, rows}}, unclear},
		"a variable as a gradient":      {ends{sent: []edgeRole{read}, received: []edgeRole{gradient}}, unclear},
		"a variable's rows as gradient": {ends{sent: []edgeRole{gathered}, received: []edgeRole{gradient}}, unclear},
		"a variable":                    {ends{sent: []edgeRole{read}}, read},
		"a variable's rows":             {ends{sent: []edgeRole{gathered}}, gathered},
		"a variable, and its rows":      {ends{sent: []edgeRole{read, gathered}}, unclear},
		"a variable for some use":       {ends{sent: []edgeRole{read}, received: []edgeRole{unclear}}, unclear},
		"no graph":                      {ends{}, unclear},
	} {
		var f facts
		number := uint64(0)
		add := func(g *graph) {
			number++
			id := graphID{scope: sc, context: 1, name: number}
			f.register(id, g)
			f.run(id, 7)
		}
		for _, r := range c.sent {
			add(&graph{sent: map[rendezvous]edgeRole{e: r}})
		}
		for _, r := range c.received {
			add(&graph{received: map[rendezvous]edgeRole{e: r}})
		}
		add(&graph{received: map[rendezvous]edgeRole{{name: "another"}: assigned}})
		got, function := f.role(sc, 7, e)
		if got != c.want {
			t.Errorf("%s: role %d, want %d", name, got, c.want)
		}
		if named := len(c.sent)+len(c.received) > 0; (function != 0) != named || function == number {
			t.Errorf("%s: it is an edge of function %d", name, function)
		}
		if other, _ := f.role(sc, 8, e); other != unclear {
			t.Errorf("%s: in another step it has role %d", name, other)
		}
	}
	var f facts
	id := graphID{scope: sc, session: 1, name: 9}
	f.register(id, &graph{received: map[rendezvous]edgeRole{e: gradient}})
	f.run(id, 7)
	if got, function := f.role(sc, 7, e); got != gradient || function != 0 {
		t.Errorf("an edge of a session's graph has role %d, want %d, and is function %d's", got, gradient, function)
	}
	f.graphs.Delete(sc.peer, id)
	if got, _ := f.role(sc, 7, e); got != unclear {
		t.Errorf("an edge of a graph that was forgotten has role %d", got)
	}
	edges := map[rendezvous]edgeRole{}
	for i, r := range []edgeRole{gradient, gradient, assigned, gradient} {
		note(edges, e, r)
		if want := []edgeRole{gradient, gradient, unclear, unclear}[i]; edges[e] != want {
			t.Errorf("an edge that is named %d times has role %d, want %d", i+1, edges[e], want)
		}
	}
}

// A gradient is proved, is large enough to be no scale, and, where sums of metrics look the same, the user says that
// sums are gradients.
func TestRolesThatMayLose(t *testing.T) {
	const large, small = minDescent, minDescent - 4
	for _, c := range []struct {
		edge  edgeRole
		size  int
		sums  parser.Sums
		role  tensor.Role
		proof tensor.Proof
	}{
		{gradient, small, parser.SumsProved, tensor.Gradient, tensor.ByUpdate}, {rows, small, parser.SumsProved, tensor.Gradient, tensor.ByUpdate},
		{descent, large, parser.SumsProved, tensor.Gradient, tensor.ByWire}, {descent, small, parser.SumsGradients, tensor.Unknown, tensor.ByWire},
		{update, large, parser.SumsGradients, tensor.Gradient, tensor.ByUser}, {update, small, parser.SumsGradients, tensor.Unknown, tensor.ByWire}, {update, large, parser.SumsProved, tensor.Unknown, tensor.ByWire},
		{assigned, large, parser.SumsGradients, tensor.State, tensor.ByWire}, {read, large, parser.SumsGradients, tensor.State, tensor.ByWire}, {gathered, large, parser.SumsGradients, tensor.State, tensor.ByWire},
		{unclear, large, parser.SumsGradients, tensor.Unknown, tensor.ByWire},
	} {
		x := tensor.Tensor{Size: c.size, Proof: tensor.ByWire}
		if setRole(&x, c.edge, c.sums); x.Role != c.role || x.Proof != c.proof || (x.Why == tensor.OK) != (c.role != tensor.Unknown) || (x.Keys != 0) != (c.edge == rows || c.edge == descent) {
			t.Errorf("edge role %d of %d bytes, sums %v: %+v, want %v, %v", c.edge, c.size, c.sums, x, c.role, c.proof)
		}
	}
	floats, ints := typeOf(1), typeOf(3)
	for _, c := range []struct {
		typ   uint64
		e     elementType
		size  int
		pass  uint64
		calls int
		sums  parser.Sums
		role  tensor.Role
	}{
		{typeReduce, floats, large, 0, minCalls, parser.SumsGradients, tensor.Gradient}, {typeReduce, floats, large, 1, minCalls, parser.SumsGradients, tensor.Aggregate},
		{typeReduce, floats, large, 0, minCalls - 1, parser.SumsGradients, tensor.Unknown}, {typeReduce, floats, small, 0, minCalls, parser.SumsGradients, tensor.Unknown},
		{typeReduce, floats, large, 0, minCalls, parser.SumsProved, tensor.Unknown}, {typeGather, floats, large, 0, minCalls, parser.SumsGradients, tensor.Unknown},
		{typeReduce, ints, large, 0, minCalls, parser.SumsGradients, tensor.Exact}, {typeBroadcast, floats, large, 0, minCalls, parser.SumsGradients, tensor.Exact},
	} {
		of := collective{typ: c.typ}
		of.shape.add(uint64(c.size / c.e.size))
		x := tensor.Tensor{Size: c.size, DType: c.e.dtype, Proof: tensor.ByWire}
		if setCollective(&x, &of, c.e, c.pass, c.calls, c.sums); x.Role != c.role || (x.Proof == tensor.ByUser) != (c.role == tensor.Gradient || c.role == tensor.Aggregate) {
			t.Errorf("%+v: %+v", c, x)
		}
	}
}
