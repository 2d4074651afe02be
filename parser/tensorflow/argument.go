package tensorflow

import (
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// Paths of TensorProtos in calls that carry arguments and results by value (tensorflow/core/protobuf/worker.proto,
// master.proto, eager_service.proto).
var (
	runGraphArguments    = [2][]protoscan.Path{{protoscan.Of(3, 2)}, {protoscan.Of(1, 2)}}
	runStepArguments     = [2][]protoscan.Path{{protoscan.Of(2, 2)}, {protoscan.Of(1, 2)}}
	enqueueArguments     = [2][]protoscan.Path{{protoscan.Of(3, 3, 2), protoscan.Of(3, 2, 10, 2), protoscan.Of(3, 7, 2, 1, 1)}, {protoscan.Of(1, 2)}}
	runFunctionArguments = [2][]protoscan.Path{{protoscan.Of(2, 10, 2)}, {protoscan.Of(2)}}
)

// argumentsOf returns the paths of the TensorProtos in a method's messages from one side.
func argumentsOf(k kind, from parser.Side) []protoscan.Path {
	switch k {
	case runGraph:
		return runGraphArguments[from]
	case runStep:
		return runStepArguments[from]
	case enqueue:
		return enqueueArguments[from]
	}
	return runFunctionArguments[from]
}

// Fields of the requests that run graphs and functions.
var (
	pathRunHandle  = protoscan.Of(1)
	pathRunStep    = protoscan.Of(2)
	pathRunSession = protoscan.Of(8)

	pathContext       = protoscan.Of(1) // of the requests below
	pathQueued        = protoscan.Of(3, 2)
	pathQueuedName    = protoscan.Of(3, 2, 2)
	pathQueuedStep    = protoscan.Of(3, 2, 8)
	pathOperation     = protoscan.Of(2)
	pathOperationName = protoscan.Of(2, 2)
	pathOperationStep = protoscan.Of(2, 8)
)

// An argumentReader reads a message that may hold tensors by value, functions, and the word that a graph or a function
// runs.
type argumentReader struct {
	message *message
	paths   []protoscan.Path
	in      protoscan.Path // the TensorProto under way; 0: none
	content content
	graphs  *graphs // nil: the message holds none
	payload bool

	context       uint64
	session, name uint64 // hashes
	step          uint64
	queued        []queued // operations of an EnqueueRequest
}

// A queued operation may be a function.
type queued struct {
	name uint64 // hash
	step uint64
}

// maxQueued bounds the operations of one request that are looked at.
const maxQueued = 1 << 10

func (r *argumentReader) isRequest() bool { return r.message.head.From == parser.Client }

func (r *argumentReader) Field(p protoscan.Path, n int) protoscan.Action {
	for _, t := range r.paths {
		if t == p || r.in == t && t.Leads(p) {
			r.in = t
			a, isContent := r.content.field(t, p)
			if isContent {
				return r.argument(n)
			}
			return a
		}
	}
	if a, ok := r.graphs.field(p); ok {
		return a
	}
	if r.isRequest() {
		switch k := r.message.call.kind; {
		case k == runGraph && (p == pathRunHandle || p == pathRunSession), k == runFunction && p == pathOperationName, k == enqueue && p == pathQueuedName:
			return protoscan.Keep
		case k == runFunction && p == pathOperation:
			return protoscan.Descend
		case k == enqueue && p == pathQueued:
			r.name, r.step = 0, 0
			return protoscan.Descend
		}
	}
	for _, t := range r.paths {
		if p.Leads(t) {
			return protoscan.Descend
		}
	}
	return protoscan.Skip
}

// minArgument is the size in bytes from which on an argument is a tensor.
const minArgument = 256

// argument begins the content of a tensor of n bytes: initial values, inputs, results. They have no name that comes
// again, so their kind is their key.
func (r *argumentReader) argument(n int) protoscan.Action {
	t, _, ok := r.content.value(n)
	if !ok || n < minArgument {
		return protoscan.Skip
	}
	x := r.message.call.conn
	for i := uint64(0); i < maxAlike; i++ {
		t.Key = mix.Words(x.seed, keyOfArgument, hashOf(r.message.call.path), uint64(r.in), r.content.number, r.content.shape.hash, i)
		if x.under[r.message.head.From].claim(r.message, t.Key) {
			r.payload = true
			r.message.value = t
			return protoscan.Emit
		}
	}
	return protoscan.Skip
}

// maxAlike bounds the arguments of one kind that may be under way at once.
const maxAlike = 64

func (r *argumentReader) Kept(p protoscan.Path, b []byte) {
	r.graphs.kept(p, b)
	name := xxhash.Sum64(b)
	switch k := r.message.call.kind; {
	case k == runGraph && p == pathRunHandle, k == runFunction && p == pathOperationName, k == enqueue && p == pathQueuedName:
		r.name = name
	case k == runGraph && p == pathRunSession:
		r.session = name
	}
}

func (r *argumentReader) Number(p protoscan.Path, v uint64) {
	if r.in != 0 {
		r.content.numbered(r.in, p, v)
	}
	if !r.isRequest() {
		return
	}
	switch k := r.message.call.kind; {
	case k == runGraph && p == pathRunStep, k == runFunction && p == pathOperationStep, k == enqueue && p == pathQueuedStep:
		r.step = v
	case k != runGraph && p == pathContext:
		r.context = v
	}
}

func (r *argumentReader) Leave(p protoscan.Path) {
	r.graphs.leave(p)
	if p == r.in {
		r.in = 0
	}
	if r.isRequest() && r.message.call.kind == enqueue && p == pathQueued && r.step != 0 && len(r.queued) < maxQueued {
		r.queued = append(r.queued, queued{r.name, r.step})
	}
}

func (r *argumentReader) end(whole bool) bool {
	if !whole || !r.isRequest() {
		return r.payload
	}
	x := r.message.call.conn
	id := graphID{scope: x.scope, server: x.conn.Server, session: r.session, context: r.context, name: r.name}
	switch r.message.call.kind {
	case runGraph, runFunction:
		x.facts.run(id, r.step)
	case enqueue:
		for _, g := range r.graphs.done {
			id.name = g.name
			x.facts.register(id, g.graph)
		}
		for _, q := range r.queued {
			id.name = q.name
			x.facts.run(id, q.step)
		}
	}
	return r.payload
}

func (r *argumentReader) held() int {
	return r.graphs.held() + int(unsafe.Sizeof(queued{}))*cap(r.queued)
}

// A graphReader reads a RegisterGraphRequest.
type graphReader struct {
	message *message
	graphs  *graphs
	session uint64 // hash
}

var (
	pathSession = protoscan.Of(1)
	pathHandle  = protoscan.Of(1) // of the response
)

func (r *graphReader) Field(p protoscan.Path, n int) protoscan.Action {
	if p == pathSession {
		return protoscan.Keep
	}
	a, _ := r.graphs.field(p)
	return a
}

func (r *graphReader) Kept(p protoscan.Path, b []byte) {
	if p == pathSession {
		r.session = xxhash.Sum64(b)
	}
	r.graphs.kept(p, b)
}

func (r *graphReader) Number(protoscan.Path, uint64) {}
func (r *graphReader) Leave(p protoscan.Path)        { r.graphs.leave(p) }

func (r *graphReader) end(whole bool) bool {
	if c := r.message.call; whole && len(r.graphs.done) == 1 {
		c.conn.facts.await(c.conn.scope.peer, c.stream, waiting{r.graphs.done[0].graph, r.session})
	}
	return false
}

func (r *graphReader) held() int { return r.graphs.held() }

// A handleReader reads a RegisterGraphResponse, which names the graph.
type handleReader struct {
	message *message
	handle  uint64 // hash
}

func (r *handleReader) Field(p protoscan.Path, n int) protoscan.Action {
	if p == pathHandle {
		return protoscan.Keep
	}
	return protoscan.Skip
}

func (r *handleReader) Kept(_ protoscan.Path, b []byte) { r.handle = xxhash.Sum64(b) }
func (r *handleReader) Number(protoscan.Path, uint64)   {}
func (r *handleReader) Leave(protoscan.Path)            {}

func (r *handleReader) end(whole bool) bool {
	c := r.message.call
	if w, ok := c.conn.facts.awaited(c.conn.scope.peer, c.stream); ok && whole {
		c.conn.facts.register(graphID{scope: c.conn.scope, server: c.conn.conn.Server, session: w.session, name: r.handle}, w.graph)
	}
	return false
}

func (r *handleReader) held() int { return 0 }
