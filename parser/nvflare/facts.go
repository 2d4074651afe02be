package nvflare

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/npy"
	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/tensor"
)

// Bounds on the number of entries, of all peers together unless a comment says otherwise.
const (
	maxAnnouncements = 64
	maxNames         = 1 << 12 // in an announcement
	maxRequests      = 1 << 12
)

// facts holds the facts about all jobs that connections have shown. They are kept by the peer that told them: when
// there are too many, the peer with the most facts loses its oldest.
type facts struct {
	mu            sync.Mutex
	announcements lru.Shared[uint64, fact, *announcement] // by ref_id
	requests      lru.Shared[uint64, fact, fact]          // the ref_id that a request, by sm__ri, asks for
}

// A fact names an announcement or a request of a job.
type fact struct {
	scope mix.Scope
	id    string
}

// An announcement says which arrays may be downloaded. It must not change once it is in facts.
type announcement struct {
	from  parser.Side
	role  tensor.Role          // of the floats, if their container lets elements change
	names map[string]arrayName // names of the arrays, by the names of their files
}

// An arrayName is the name of an array.
type arrayName struct {
	hash      uint64
	text      string // shortened, for people
	statistic bool   // isStatistic of the name
	elsewhere bool   // the message also has the array outside of the DXO's data
}

// statistics has the ends of the names of a normalizing layer's statistics, in PyTorch and Keras: mean and variance of
// its input and, in PyTorch, the number of batches. They are not sums of gradients. A variance whose difference has
// lost something may become negative. The number of batches is an integer until a server has averaged it.
var statistics = [][]byte{[]byte("running_mean"), []byte("running_var"), []byte("num_batches_tracked"), []byte("moving_mean"), []byte("moving_variance")}

// isStatistic reports whether an array of that name has statistics.
func isStatistic(name []byte) bool {
	return slices.ContainsFunc(statistics, func(end []byte) bool { return bytes.HasSuffix(bytes.TrimSuffix(name, []byte(":0")), end) })
}

// maxLabel bounds a text that is kept for people, in bytes.
const maxLabel = 48

// cellName returns the site of a cell, whose fully qualified name is SITE or SITE.JOB.
func cellName(fqcn string) string {
	site, _, _ := strings.Cut(fqcn, ".")
	return npy.Short(site, maxLabel)
}

// announce notes an announcement.
func (f *facts) announce(ref fact, a *announcement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announcements.Keep(ref.scope.Peer, ref, a, maxAnnouncements)
}

// request notes that the request id asks for the announcement ref.
func (f *facts) request(id, ref fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests.Keep(id.scope.Peer, id, ref, maxRequests)
}

// answered returns the announcement that a request asks for, or nil if it is not known.
func (f *facts) answered(id fact) *announcement {
	f.mu.Lock()
	defer f.mu.Unlock()
	ref, ok := f.requests.Use(id.scope.Peer, id)
	if !ok {
		return nil
	}
	a, _ := f.announcements.Use(ref.scope.Peer, ref)
	return a
}

// The first word of a mix says how its other words are made.
const (
	baseOfArray = mix.Free + iota
	keyOfArray
	baseOfBytes
)

// A connection holds the state that the two directions share.
type connection struct {
	facts *facts
	scope mix.Scope
	seed  uint64 // of the job's tensors, the same at both proxies
}

func newConnection(f *facts, c parser.Conn) *connection {
	scope, seed := mix.Job(c.Job, c.Peer, c.Server)
	return &connection{facts: f, scope: scope, seed: seed}
}

// A direction is one direction of a connection.
type direction struct {
	conn   *connection
	side   parser.Side
	pieces bool // the sender may wait for the receiver within a frame, so long tensors are cut
}
