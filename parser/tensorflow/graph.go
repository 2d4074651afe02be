package tensorflow

// A graph tells the roles of the tensors that cross the edges of one part of a graph: the part that one device runs.
type graph struct {
	sent, received map[rendezvous]edgeRole
	size           int // bytes of memory, about
}

// A rendezvous names an edge to and from a part of a graph.
type rendezvous struct{ from, to, name string }

// A node is a node of a graph; one without a name so far is only an input of others.
type node struct {
	op     op
	inputs []int32    // nodes, in order
	edge   rendezvous // of _Send and _Recv
}
