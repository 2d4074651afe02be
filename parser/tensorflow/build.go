package tensorflow

import (
	"strings"
	"sync"
)

// Attributes of _Send and _Recv.
const (
	attrFrom = "send_device"
	attrTo   = "recv_device"
	attrName = "tensor_name"
)

// A build is a graph under way. Other connections may give it up, for its memory.
type build struct {
	peer    string // that tells of the graph
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
