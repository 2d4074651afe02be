package tensorflow

// A way says how a value has changed since it came.
type way uint8

const (
	unchanged way = iota // or in another form
	scaled
	computed
	ways // their number
)

// A consumer is an input of a node.
type consumer struct {
	node int32
	at   int
}

// edgesOf returns the edges of a graph.
func edgesOf(nodes []node) *graph {
	consumers := make([][]consumer, len(nodes))
	for i, x := range nodes {
		for at, from := range x.inputs {
			consumers[from] = append(consumers[from], consumer{int32(i), at})
		}
	}
	g := &graph{sent: map[rendezvous]edgeRole{}, received: map[rendezvous]edgeRole{}, size: perGraph}
	w := walk{nodes: nodes, consumers: consumers, seen: make([]uint8, len(nodes))}
	for i, x := range nodes {
		if x.op.kind == receive || x.op.kind == send {
			g.size += perEdge + len(x.edge.from) + len(x.edge.to) + len(x.edge.name)
		}
		switch x.op.kind {
		case receive:
			note(g.received, x.edge, w.from(int32(i)))
		case send:
			note(g.sent, x.edge, w.source(x))
		}
	}
	return g
}

// Memory of a graph and an edge besides its texts, in bytes.
const (
	perGraph = 256
	perEdge  = 128
)

// note notes the role of an edge. One that a graph names twice in different roles has none.
func note(edges map[rendezvous]edgeRole, e rendezvous, r edgeRole) {
	if last, ok := edges[e]; ok && last != r {
		r = unclear
	}
	edges[e] = r
}

// source returns the role of the tensor that a node sends.
func (w *walk) source(x node) edgeRole {
	nodes, role := w.nodes, read
	for range min(maxFromEdge, len(nodes)) { // a graph may have loops
		if w.total++; len(x.inputs) == 0 || w.total > maxFromEdges {
			return unclear
		}
		switch x = nodes[x.inputs[0]]; x.op.kind {
		case variable:
			return role
		case same:
			if x.op.at == 0 || len(x.inputs) > 1 { // another form, or one of several outputs
				return unclear
			}
		case gathers:
			role = gathered
		case gathersResource:
			return gathered
		default:
			return unclear
		}
	}
	return unclear
}

// A walk follows a value through a graph.
type walk struct {
	nodes     []node
	consumers [][]consumer
	seen      []uint8 // by node: a bit for each way in which the value has come there
	visited   []int32 // nodes that were seen
	found     uint16  // a bit for each role
	spent     int     // inputs that were looked at, from this edge
	total     int     // from all edges
}

// Bounds on the inputs that are looked at: of values that go further nothing is known.
const (
	maxFromEdge  = 1 << 14
	maxFromEdges = 1 << 22
)

// from returns the role of the value that node i receives.
func (w *walk) from(i int32) edgeRole {
	w.found, w.spent = 0, 0
	w.follow(i, unchanged)
	w.total += w.spent
	for _, i := range w.visited {
		w.seen[i] = 0
	}
	w.visited = w.visited[:0]
	for r := gradient; r <= assigned; r++ {
		if w.found == 1<<r {
			return r
		}
	}
	return unclear
}

func (w *walk) find(r edgeRole) { w.found |= 1 << r }

// follow follows the output of node i.
func (w *walk) follow(i int32, how way) {
	if w.seen[i]&(1<<how) != 0 {
		return
	}
	if w.seen[i] == 0 {
		w.visited = append(w.visited, i)
	}
	w.seen[i] |= 1 << how
	for _, c := range w.consumers[i] {
		w.consume(c, how)
	}
}

// consume takes note of an input that the value is. An unclear role ends the walk as far as it matters.
func (w *walk) consume(c consumer, how way) {
	if w.found&(1<<unclear) != 0 {
		return
	}
	if w.spent++; w.spent > maxFromEdge || w.total > maxFromEdges {
		w.find(unclear)
		return
	}
	o := w.nodes[c.node].op
	here := o.at < 0 || c.at == o.at
	switch {
	case o.kind == dimensions:
	case !here:
		w.find(unclear)
	case o.kind == same, o.kind == sums:
		w.follow(c.node, how)
	case o.kind == scales:
		w.follow(c.node, max(how, scaled))
	case o.kind == computes:
		w.follow(c.node, computed)
	case o.kind == applies && how == unchanged:
		w.find(gradient)
	case o.kind == appliesRows && how == unchanged:
		w.find(rows)
	case o.kind == scatterSubtracts && how <= scaled:
		w.find(descent)
	case o.kind == assigns && how == unchanged:
		w.find(assigned)
	case o.kind == assigns && how == computed && w.renews(c.node):
		w.find(update)
	case o.kind == applies, o.kind == appliesRows, o.kind == scatterSubtracts, o.kind == adds:
		w.find(update)
	default:
		w.find(unclear)
	}
}

// renews reports whether an assignment's value is made of the variable's own value, among others, as an optimizer's
// moving averages are.
func (w *walk) renews(assign int32) bool {
	inputs := w.nodes[assign].inputs
	if len(inputs) < 2 {
		return false
	}
	target, seen, next := inputs[0], map[int32]bool{}, []int32{inputs[1]}
	for len(next) > 0 {
		i := next[len(next)-1]
		next = next[:len(next)-1]
		if w.spent++; w.spent > maxFromEdge || w.total > maxFromEdges {
			return false
		}
		x := w.nodes[i]
		switch {
		case seen[i]:
			continue
		case x.op.kind == variable && (i == target || len(x.inputs) > 0 && x.inputs[0] == target):
			return true
		}
		seen[i] = true
		switch x.op.kind {
		case same, scales, computes:
			next = append(next, x.inputs...)
		}
	}
	return false
}
