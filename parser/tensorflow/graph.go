package tensorflow

import (
	"strings"
	"sync"

	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// A graph tells the roles of the tensors that cross the edges of one part of a graph: the part that one device runs.
type graph struct {
	sent, received map[rendezvous]edgeRole
	size           int // bytes of memory, about
}

// A rendezvous names an edge to and from a part of a graph.
type rendezvous struct{ from, to, name string }

// A graphPath says where a message holds a graph.
type graphPath struct {
	whole, name, node protoscan.Path // name 0: the graph has none in it
}

var (
	pathOfGraph    = graphPath{whole: protoscan.Of(2), node: protoscan.Of(2, 1)}                                                // GraphDef of RegisterGraphRequest
	pathOfFunction = graphPath{whole: protoscan.Of(3, 4, 1), name: protoscan.Of(3, 4, 1, 1, 1), node: protoscan.Of(3, 4, 1, 3)} // FunctionDef of EnqueueRequest
)

// Fields of a NodeDef (tensorflow/core/framework/node_def.proto), below its own path.
const (
	fieldNodeName  = 1
	fieldNodeOp    = 2
	fieldNodeInput = 3
	fieldNodeAttr  = 5
	fieldKey       = 1 // of an entry of a map
	fieldValue     = 2
	fieldString    = 2 // of an AttrValue
)

// graphs reads the graphs of a message.
type graphs struct {
	facts *facts
	path  graphPath
	build *build // of the current graph
	name  string
	attr  string // whose value follows; "": of no use
	done  []named
	size  int // bytes of done
}

// A named graph is a function, or a graph without a name.
type named struct {
	name  uint64 // hash; 0: none
	graph *graph
}

// maxFunctions bounds the functions that one message registers, in number and, by maxEdges, in bytes.
const maxFunctions = 1 << 10

func newGraphs(f *facts, p graphPath) *graphs { return &graphs{facts: f, path: p} }

// field says how to read a field of a graph; ok is false if it is of none.
func (g *graphs) field(p protoscan.Path) (a protoscan.Action, ok bool) {
	if g == nil {
		return 0, false
	}
	node := g.path.node
	switch p {
	case g.path.whole:
		g.build, g.name = g.facts.begin(), ""
		return protoscan.Descend, true
	case node:
		g.build.node()
		return protoscan.Descend, true
	case node.In(fieldNodeAttr), node.In(fieldNodeAttr).In(fieldValue):
		if p == node.In(fieldNodeAttr) {
			g.attr = ""
		}
		return protoscan.Descend, true
	case g.path.name, node.In(fieldNodeName), node.In(fieldNodeOp), node.In(fieldNodeInput), node.In(fieldNodeAttr).In(fieldKey):
		return protoscan.Keep, true
	case node.In(fieldNodeAttr).In(fieldValue).In(fieldString):
		if g.attr != "" {
			return protoscan.Keep, true
		}
		return protoscan.Skip, true
	}
	if p.Leads(node) || g.path.name != 0 && p.Leads(g.path.name) {
		return protoscan.Descend, true
	}
	return protoscan.Skip, false
}

// kept takes a field of a graph.
func (g *graphs) kept(p protoscan.Path, b []byte) {
	if g == nil || g.build == nil {
		return
	}
	node := g.path.node
	switch p {
	case g.path.name:
		g.name = string(b)
	case node.In(fieldNodeName):
		g.build.named(b)
	case node.In(fieldNodeOp):
		g.build.operation(string(b))
	case node.In(fieldNodeInput):
		g.build.input(string(b))
	case node.In(fieldNodeAttr).In(fieldKey):
		switch key := string(b); key {
		case attrFrom, attrTo, attrName:
			g.attr = key
		}
	case node.In(fieldNodeAttr).In(fieldValue).In(fieldString):
		g.build.attribute(g.attr, string(b))
	}
}

// leave ends a graph.
func (g *graphs) leave(p protoscan.Path) {
	if g == nil || p != g.path.whole || g.build == nil {
		return
	}
	x := g.build.finish()
	g.facts.end(g.build)
	if g.build = nil; x != nil && len(g.done) < maxFunctions && g.size+x.size <= maxEdges {
		g.done = append(g.done, named{hashOf(g.name), x})
		g.size += x.size
	}
}

// Attributes of _Send and _Recv.
const (
	attrFrom = "send_device"
	attrTo   = "recv_device"
	attrName = "tensor_name"
)

// A build is a graph under way. Other connections may give it up, for its memory.
type build struct {
	mu      sync.Mutex
	cost    int // bytes of memory, about
	failed  bool
	indices map[string]int32 // of nodes, by name
	nodes   []node
	at      int32 // the current node, once it is named
	op      op
	inputs  []int32
	edge    rendezvous
}

// A node is a node of a graph; one without a name so far is only an input of others.
type node struct {
	op     op
	inputs []int32    // nodes, in order
	edge   rendezvous // of _Send and _Recv
}

// maxGraph bounds the memory of a graph under way, in bytes.
const maxGraph = 16 << 20

// spend takes memory, and reports false if there is none. The caller holds b.mu.
func (b *build) spend(n int) bool {
	if b.failed {
		return false
	}
	if b.cost += n; b.cost > maxGraph {
		b.drop()
	}
	return !b.failed
}

// drop gives the graph up. The caller holds b.mu.
func (b *build) drop() {
	b.failed = true
	b.indices, b.nodes, b.inputs = nil, nil, nil
}

// giveUp gives the graph up.
func (b *build) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
}

// settle notes the node that has come. The caller holds b.mu.
func (b *build) settle() {
	if b.at < 0 || b.failed {
		return
	}
	x := node{op: b.op, inputs: b.inputs}
	if b.op.kind == send || b.op.kind == receive {
		x.edge = b.edge
	}
	b.nodes[b.at] = x
	b.at = -1
}

// node begins a node.
func (b *build) node() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	b.at, b.op, b.inputs, b.edge = -1, op{}, nil, rendezvous{}
}

// index returns the node of that name, -1 if there is no memory for it. The caller holds b.mu.
func (b *build) index(name string) int32 {
	if i, ok := b.indices[name]; ok {
		return i
	}
	const perNode = 160
	if !b.spend(perNode + len(name)) {
		return -1
	}
	if b.indices == nil {
		b.indices = map[string]int32{}
	}
	i := int32(len(b.nodes))
	b.indices[strings.Clone(name)] = i
	b.nodes = append(b.nodes, node{})
	return i
}

func (b *build) named(name []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = b.index(string(name))
}

func (b *build) operation(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.op = ops[name]
}

// input takes an input: "node", "node:index", in functions "node:output:index", or "^node", which carries no data.
func (b *build) input(text string) {
	if strings.HasPrefix(text, "^") {
		return
	}
	name, _, _ := strings.Cut(text, ":")
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.index(name); i >= 0 && b.spend(8) {
		b.inputs = append(b.inputs, i)
	}
}

func (b *build) attribute(key, value string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.spend(len(value)) {
		return
	}
	switch key {
	case attrFrom:
		b.edge.from = value
	case attrTo:
		b.edge.to = value
	case attrName:
		b.edge.name = value
	}
}

// finish ends the graph and returns its edges; nil if it was given up.
func (b *build) finish() *graph {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	if b.failed {
		return nil
	}
	g := edgesOf(b.nodes)
	b.drop()
	return g
}
