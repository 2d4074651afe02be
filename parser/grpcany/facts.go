package grpcany

import (
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
	"github.com/gradproxy/gradproxy/parser/lru"
)

// Bounds: entries, of all peers together.
const (
	maxPlaces   = 1 << 12
	maxContexts = 1 << 14
	maxNumbered = 1 << 10
)

// facts holds the facts that messages have shown, of all jobs, by the peer's hash: of several peers the one that has
// shown most has its own forgotten.
type facts struct {
	mu       sync.Mutex
	places   lru.Shared[uint64, place, fact]
	contexts lru.Shared[uint64, context, types] // that have come, and the type of their values
	methods  lru.Shared[uint64, methodKey, struct{}]
}

// A methodKey is one side of a method of a job.
type methodKey struct {
	scope  mix.Scope
	method uint64
	side   parser.Side
}

// A place is a field of a method's messages.
type place struct {
	methodKey
	path protoscan.Path
}

// A context is a leaf's place, with the texts beside it and its size.
type context struct {
	place
	texts uint64
	size  int
}

// A kind is the kind of a field's bytes.
type kind uint8

const (
	untried kind = iota
	aMessage
	aLeaf
)

// A fact is the knowledge of a place.
type fact struct {
	kind  kind
	types types // of its last value that had one
	fresh int   // contexts that had not come before
	again int   // contexts that had
}

// stable reports whether the texts beside a leaf come again.
func (f *fact) stable() bool { return f.fresh <= maxFresh || f.again > f.fresh }

// maxFresh is how many texts may be new before texts count as others in every message.
const maxFresh = 64

// at returns the fact of a place.
func (f *facts) at(p place) fact {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, _ := f.places.Use(p.scope.Peer, p)
	return x
}

// tried notes the kind of a field.
func (f *facts) tried(p place, k kind, t types) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, _ := f.places.Use(p.scope.Peer, p)
	if x.kind = k; t.known() {
		x.types = t
	}
	f.places.Keep(p.scope.Peer, p, x, maxPlaces)
}

// leaf takes note of a leaf that begins, and returns the texts that are part of its name, and the type of its value.
func (f *facts) leaf(c context) (texts uint64, t types) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, _ := f.places.Use(c.scope.Peer, c.place)
	t, came := f.contexts.Use(c.scope.Peer, c)
	if came {
		x.again++
	} else {
		x.fresh++
		f.contexts.Keep(c.scope.Peer, c, types{}, maxContexts)
	}
	f.places.Keep(c.scope.Peer, c.place, x, maxPlaces)
	if !t.known() {
		t = x.types
	}
	if !x.stable() {
		return 0, x.types
	}
	return c.texts, t
}

// ended notes the type of a leaf's value.
func (f *facts) ended(c context, t types) {
	if !t.known() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.contexts.Keep(c.scope.Peer, c, t, maxContexts)
	if x, ok := f.places.Use(c.scope.Peer, c.place); ok && x.types != t {
		x.types = t
		f.places.Keep(c.scope.Peer, c.place, x, maxPlaces)
	}
}

// number notes that a call of the method has ended with several messages of a side.
func (f *facts) number(m methodKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.methods.Keep(m.scope.Peer, m, struct{}{}, maxNumbered)
}

// numbered reports whether messages are known by their numbers.
func (f *facts) numbered(m methodKey) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.methods.Use(m.scope.Peer, m)
	return ok
}
