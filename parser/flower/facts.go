package flower

import (
	"encoding/hex"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/npy"
	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/tensor"
)

// Bounds: entries, of all peers together.
const (
	maxPlaces = 1 << 15
	maxTypes  = 1 << 13
)

// facts holds the facts on objects that messages have told, by the peer's hash: of several peers the one that has told
// most has its own forgotten.
type facts struct {
	mu     sync.Mutex
	places lru.Shared[uint64, objectKey, place]
	types  lru.Shared[uint64, arrayKey, tensor.DType]
}

// An objectKey names an object of a job.
type objectKey struct {
	scope mix.Scope
	id    objectID
}

// An arrayKey names an array of a job.
type arrayKey struct {
	scope mix.Scope
	array uint64
}

// An objectID is the SHA-256 of an object.
type objectID [32]byte

// parseID reads an id, which is written in hexadecimal.
func parseID(b []byte) (id objectID, ok bool) {
	if len(b) != hex.EncodedLen(len(id)) {
		return id, false
	}
	_, err := hex.Decode(id[:], b)
	return id, err == nil
}

// A place says which array an object belongs to, and which part of that array it is.
type place struct {
	array uint64 // names the array
	chunk int    // number of the part
	// For people: the array is that one of that record, from 1.
	record, leaf int
}

// put notes the place of an object.
func (f *facts) put(k objectKey, p place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.places.Keep(k.scope.Peer, k, p, maxPlaces)
}

// place returns the place of an object.
func (f *facts) place(k objectKey) (place, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places.Use(k.scope.Peer, k)
}

// putType notes the type of an array's elements.
func (f *facts) putType(array arrayKey, d tensor.DType) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.types.Keep(array.scope.Peer, array, d, maxTypes)
}

// typeOf returns the type of an array's elements.
func (f *facts) typeOf(array arrayKey) (tensor.DType, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.types.Use(array.scope.Peer, array)
}

// maxLabel bounds the text of a name that is kept for people, in bytes.
const maxLabel = 48

// labelOf returns the text of a name for people.
func labelOf(b []byte) string { return npy.Short(string(b), maxLabel) }

// The first word of a mix says how its other words are made.
const (
	baseOfArray     = mix.Free + iota // an array in a message
	baseOfResult                      // an array, or part, that a client sends back
	baseOfChunk                       // a part of an array, in an object
	baseOfObject                      // an object whose place is not known
	contentOfObject                   // the elements in an object
	keyOfBase                         // a tensor
	arrayOfTree                       // an array in a tree of objects
)

// A connection holds the state that the calls of a connection share.
type connection struct {
	facts *facts
	scope mix.Scope
	seed  uint64 // of the job's tensors, the same at both proxies
	host  uint64 // names the client's host
}

func newConnection(f *facts, c parser.Conn) *connection {
	client := c.Client.Addr().As16()
	scope, seed := mix.Job(c.Job, c.Peer, c.Server)
	return &connection{facts: f, scope: scope, seed: seed, host: xxhash.Sum64(client[:])}
}
