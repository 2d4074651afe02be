package tensorflow

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/lru"
)

// facts holds the facts that connections have shown, of all jobs.
type facts struct {
	mu          sync.Mutex              // guards the fields below
	graphs      shared[graphID, *graph] // costs are bytes of their edges
	steps       shared[stepID, *step]
	requests    shared[requestID, struct{}]
	instances   shared[instanceID, collective]
	collectives shared[collectiveID, int] // how many instances of a collective there were
	building    []*build
	waiting     shared[*grpc.Stream, waiting] // by the stream of the call; costs are bytes of the graphs' edges
}

// shared are the facts that peers, by their names, and this site have told. The one that has told most has its own
// forgotten.
type shared[K comparable, V any] = lru.Shared[string, K, V]

// Bounds: entries, of all peers together, but where they say else.
const (
	maxEdges       = 32 << 20 // bytes, of all graphs
	maxRuns        = 1 << 14
	maxRequests    = 1 << 14
	maxInstances   = 1 << 14
	maxCollectives = 1 << 12
	maxBuilding    = 8
)

// A graphID names a graph: a part that a session has registered at a server, or a function of a context.
type graphID struct {
	scope   scope
	server  netip.AddrPort
	session uint64 // of TensorFlow 1: hash of its name
	context uint64 // of TensorFlow 2
	name    uint64 // hash of the graph's handle, or the function's name
}

// A stepID names one run of a job's graphs.
type stepID struct {
	scope scope
	step  uint64
}

// A step is the graphs that run in it, on various servers.
type step struct{ graphs []graphID }

// maxGraphs bounds the graphs of a step.
const maxGraphs = 32

// A requestID names a request for a tensor.
type requestID struct {
	scope scope
	id    uint64
}

// begin begins a graph that a peer tells of. Of more than maxBuilding under way the oldest is given up of the peer that
// has most.
func (f *facts) begin(peer string) *build {
	b := &build{peer: peer, at: -1}
	f.mu.Lock()
	var oldest *build
	if len(f.building) >= maxBuilding {
		i := f.busiest(peer)
		oldest = f.building[i]
		f.building = slices.Delete(f.building, i, i+1)
	}
	f.building = append(f.building, b)
	f.mu.Unlock()
	if oldest != nil {
		oldest.giveUp() // which waits while that graph is being read to its end, and nobody else then waits with it
	}
	return b
}

// busiest returns the index of the oldest graph under way of the peer that has most of them, with the one that it is
// about to begin.
func (f *facts) busiest(peer string) int {
	n := map[string]int{peer: 1}
	for _, b := range f.building {
		n[b.peer]++
	}
	largest := -1
	for i, b := range f.building {
		if largest < 0 || n[b.peer] > n[f.building[largest].peer] {
			largest = i
		}
	}
	return largest
}

// end notes that a graph is no longer under way.
func (f *facts) end(b *build) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, x := range f.building {
		if x == b {
			f.building = append(f.building[:i], f.building[i+1:]...)
			return
		}
	}
}

// register notes a graph.
func (f *facts) register(id graphID, g *graph) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.graphs.Cost = func(g *graph) int { return g.size }
	f.graphs.Keep(id.scope.peer, id, g, maxEdges)
}

// A waiting is a graph whose handle the server has not told.
type waiting struct {
	graph   *graph
	session uint64
}

// await keeps a graph that a peer tells of until its call is answered. All that wait have maxEdges.
func (f *facts) await(peer string, c *grpc.Stream, w waiting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting.Cost = func(w waiting) int { return w.graph.size }
	f.waiting.Keep(peer, c, w, maxEdges)
}

// awaited returns the graph that waits for a call's answer, and forgets it.
func (f *facts) awaited(peer string, c *grpc.Stream) (waiting, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, ok := f.waiting.Use(peer, c)
	f.waiting.Delete(peer, c)
	return w, ok
}

// run notes that a step runs a graph, if that is known.
func (f *facts) run(id graphID, number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.graphs.Use(id.scope.peer, id); !ok {
		return
	}
	key := stepID{id.scope, number}
	s, ok := f.steps.Use(key.scope.peer, key)
	if !ok {
		s = new(step)
		f.steps.Keep(key.scope.peer, key, s, maxRuns)
	}
	if !slices.Contains(s.graphs, id) && len(s.graphs) < maxGraphs {
		s.graphs = append(s.graphs, id)
	}
}

// role returns the role of an edge's tensor in a step, and the hash of the name of the function whose edge it is; 0: a
// graph's, or not known. It is unclear if no graph of the step is known to have the edge.
func (f *facts) role(sc scope, number uint64, e rendezvous) (r edgeRole, function uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.steps.Use(sc.peer, stepID{sc, number})
	if !ok {
		return unclear, 0
	}
	var sent, received [gathered + 1]bool
	for _, id := range s.graphs {
		g, ok := f.graphs.Use(id.scope.peer, id)
		if !ok { // it was forgotten
			continue
		}
		x, isSent := g.sent[e]
		sent[x] = sent[x] || isSent
		y, isReceived := g.received[e]
		received[y] = received[y] || isReceived
		if (isSent || isReceived) && id.context != 0 {
			function = id.name
		}
	}
	isRead := sent[read] || sent[gathered]
	for x := gradient; x <= assigned; x++ {
		switch {
		case !received[x]:
		case r != unclear || received[unclear] || isRead: // graphs disagree
			return unclear, function
		default:
			r = x
		}
	}
	switch {
	case sent[read] == sent[gathered], received[unclear]: // a variable of one server, which another uses in its own way
		return r, function
	case sent[read]:
		return read, function
	}
	return gathered, function
}

// repeated notes a request, and reports whether it has come before: its answer is then no new value.
func (f *facts) repeated(sc scope, id uint64) bool {
	if id == 0 { // it has no number
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := requestID{sc, id}
	if _, ok := f.requests.Use(sc.peer, key); ok {
		return true
	}
	f.requests.Keep(sc.peer, key, struct{}{}, maxRequests)
	return false
}

// instance notes a call of a collective.
func (f *facts) instance(id instanceID, c collective) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, ok := f.instances.Use(id.scope.peer, id); ok {
		if last.typ != c.typ || last.number != c.number || last.name != c.name {
			last.unclear = true
			f.instances.Keep(id.scope.peer, id, last, maxInstances)
		}
		return
	}
	f.instances.Keep(id.scope.peer, id, c, maxInstances)
	k := collectiveID{id.scope, id.group, c.name, c.number, c.shape.hash}
	n, _ := f.collectives.Use(id.scope.peer, k)
	f.collectives.Keep(id.scope.peer, k, n+1, maxCollectives)
}

// collective returns a call of a collective, and how many such calls there were, as the peer and this site have said.
// They must not contradict each other.
func (f *facts) collective(id instanceID) (c collective, calls int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, calls, ok = f.saidIn(id)
	id.scope = id.scope.ofSite()
	own, more, too := f.saidIn(id)
	switch {
	case !too:
		return c, calls, ok && !c.unclear
	case !ok:
		return own, more, !own.unclear
	}
	agree := !c.unclear && !own.unclear && c.typ == own.typ && c.number == own.number && c.name == own.name
	return own, max(calls, more), agree
}

// saidIn returns a call of a collective as one scope has it, and how many such calls it has. The caller holds f.mu.
func (f *facts) saidIn(id instanceID) (c collective, calls int, ok bool) {
	c, ok = f.instances.Use(id.scope.peer, id)
	if !ok {
		return collective{}, 0, false
	}
	calls, _ = f.collectives.Use(id.scope.peer, collectiveID{id.scope, id.group, c.name, c.number, c.shape.hash})
	return c, calls, true
}
