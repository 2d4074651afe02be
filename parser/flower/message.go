package flower

import (
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/npy"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
	"github.com/gradproxy/gradproxy/tensor"
)

// A call is one call of a method.
type call struct {
	conn   *connection
	path   string
	method *method

	mu     sync.Mutex
	object objectID // that the request names
	named  bool     // it has named one
}

// open begins a call, or returns nil if nobody looks at its messages.
func (x *connection) open(path string) *call {
	m := methods[path]
	if m == nil {
		return nil
	}
	return &call{conn: x, path: path, method: m}
}

// name notes the object that the request names.
func (c *call) name(id objectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.object, c.named = id, true
}

func (c *call) nameOf() (objectID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.object, c.named
}

// A message reads one message of a call.
type message struct {
	call   *call
	side   parser.Side
	layout layout
	scan   protoscan.Scanner

	run, node uint64
	arrays    int    // that have begun in this message, or in this record
	record    uint64 // names the record
	keys      []uint64
	names     []string // the same, for people
	records   int      // in the tree, that have arrays
	leaves    int      // arrays in the record of the tree
	chunks    int      // in the array of the tree

	field   streamed
	file    npy.Scanner
	object  object
	value   tensor.Tensor // whose elements come next
	payload bool          // the message has elements
}

// A streamed is the kind of the streamed field that is under way.
type streamed uint8

const (
	ofArray streamed = iota
	ofObject
)

// message begins a message of size bytes; nil: nobody looks at it.
func (c *call) message(side parser.Side, size int) *message {
	if c == nil || c.method.layouts[side] == nil {
		return nil
	}
	m := &message{call: c, side: side, layout: c.method.layouts[side]}
	m.scan.Begin(m, size)
	return m
}

// Next classifies a prefix of b, the next bytes of the message. sure is how many bytes, from b's first on, the sender writes without waiting for an answer.
func (m *message) Next(b []byte, sure int) parser.Segment {
	left := m.scan.Emitting()
	if left == 0 {
		n, _ := m.scan.Next(b)
		return parser.Segment{Len: n}
	}
	n, elements := m.elements(b[:min(len(b), left)])
	seg := parser.Segment{Len: n}
	if elements {
		seg.Tensor = m.value
		if rest := m.value.Size - m.value.Off; rest <= sure { // else a frame ends within the tensor, maybe within an element
			seg.Tensor.Hold = rest
		}
		m.value.Off += n
		m.payload = true
	}
	m.scan.Take(n)
	return seg
}

// elements takes bytes of a streamed field, at least one, and reports whether they are elements.
func (m *message) elements(b []byte) (n int, elements bool) {
	if m.field == ofObject {
		return m.nextOfObject(b)
	}
	n, elements = m.file.Next(b)
	if size, off := m.file.Elements(); !elements && size > 0 && off == 0 {
		h, _ := m.file.Header()
		m.begin(size, h.DType, m.base(h))
	}
	return n, elements
}

// begin begins the elements of a tensor.
func (m *message) begin(size int, d tensor.DType, base uint64) {
	x := m.call.conn
	m.value = tensor.Tensor{
		Key:  mix.Words(keyOfBase, base, uint64(m.side), x.host),
		Role: tensor.State, DType: d, Size: size, Base: base, Proof: tensor.ByWire,
		Repeats: m.call.method.repeats[m.side],
	}
	if m.call.method.exact {
		m.value.Role = tensor.Exact
	}
	if d == tensor.NoDType {
		m.value.Why = tensor.DTypeUnknown
	}
}

// base returns the Base of an array in a message.
func (m *message) base(h npy.Header) uint64 {
	which := uint64(m.arrays)
	if i := m.arrays - 1; i < len(m.keys) {
		which = m.keys[i]
	}
	return mix.Words(baseOfArray, m.call.conn.seed, m.run, m.record, which, uint64(h.DType), uint64(h.Data))
}

// Leave implements protoscan.Reader.
func (m *message) Leave(protoscan.Path) {}

// Bounds of what is known of a message by name.
const (
	maxKeys = 1 << 10 // arrays of a record; the others are known by their numbers
	maxText = 1 << 10 // bytes of a name or an id; longer ones are skipped
)

// Field implements protoscan.Reader.
func (m *message) Field(p protoscan.Path, size int) protoscan.Action {
	switch m.layout[p] {
	case enter:
		return protoscan.Descend
	case recordSet:
		if size < minRecordSet {
			return protoscan.Skip
		}
		return protoscan.Descend
	case record:
		m.arrays, m.keys, m.names = 0, m.keys[:0], m.names[:0]
		return protoscan.Descend
	case element, array:
		return m.array(p, size)
	case tree:
		m.records = 0
		return protoscan.Descend
	case branch:
		m.leaves = 0
		return protoscan.Descend
	case leaf:
		if m.leaves == 0 {
			m.records++
		}
		m.leaves++
		m.chunks = 0
		return protoscan.Descend
	case chunk:
		m.chunks++
		return protoscan.Descend
	case content:
		m.field = ofObject
		m.beginObject(size)
		return protoscan.Emit
	case name, key, objectOf, chunkID:
		if size <= maxText {
			return protoscan.Keep
		}
	}
	return protoscan.Skip
}

// minRecordSet is less than any RecordSet with an array takes, in bytes.
const minRecordSet = 64

// array begins an Array of a record, or a file.
func (m *message) array(p protoscan.Path, size int) protoscan.Action {
	if m.layout[p] == element {
		m.arrays++
		return protoscan.Descend
	}
	if m.layout[p>>8] != element {
		m.arrays++
	}
	m.field = ofArray
	m.file.Begin(size, false)
	return protoscan.Emit
}

// Number implements protoscan.Reader.
func (m *message) Number(p protoscan.Path, v uint64) {
	switch m.layout[p] {
	case run:
		m.run = v
	case node:
		m.node = v
	}
}

// Kept implements protoscan.Reader.
func (m *message) Kept(p protoscan.Path, b []byte) {
	switch m.layout[p] {
	case name:
		m.record = xxhash.Sum64String(recordName(string(b)))
	case key:
		if len(m.keys) < maxKeys {
			m.keys, m.names = append(m.keys, xxhash.Sum64(b)), append(m.names, labelOf(b))
		}
	case objectOf:
		if id, ok := parseID(b); ok {
			m.call.name(id)
		}
	case chunkID:
		if id, ok := parseID(b); ok {
			x := m.call.conn
			a := mix.Words(arrayOfTree, x.seed, m.run, uint64(m.records), uint64(m.leaves))
			x.facts.put(objectKey{x.scope, id}, place{a, m.chunks - 1, m.records, m.leaves})
		}
	}
}

// recordName returns a record's name, the same for the records in which the classic API sends a model and gets one back
// (fitins.parameters, evaluateins.parameters, fitres.parameters, getparametersres.parameters).
func recordName(s string) string {
	if _, last, ok := strings.Cut(s, "."); ok && last == "parameters" {
		return last
	}
	return s
}
