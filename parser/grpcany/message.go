package grpcany

import (
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/npy"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
	"github.com/gradproxy/gradproxy/tensor"
)

// The first word of a mix says how its other words are made.
const (
	baseOfLeaf = mix.Free + iota
	keyOfLeaf
	textsOfMessage
)

// Bounds of a message.
const (
	maxText   = 128     // bytes of a text that is part of a leaf's name
	maxLeaves = 1 << 10 // that are tensors; a list of them is up to 60 KiB
)

// A message reads one message.
type message struct {
	call    *call
	side    parser.Side
	number  int // in its call, where that counts
	scan    protoscan.Scanner
	texts   [maxDepth + 2]uint64 // of the messages that the next field lies in, by depth
	words   [maxDepth + 2]string // the last text of each of them, for people
	alike   map[context]int      // leaves so far
	inner   protoscan.Path       // the message that was entered last
	trying  bool                 // the field under way is the first at its place
	field   place                // under way
	context context              // of the leaf
	sample  *sampler             // of the leaf
	trial   *trial               // of the field, if it is the first
	left    int                  // bytes of the field before the elements
	value   tensor.Tensor        // the elements; Size is 0: there are none
	label   parser.Label         // of the leaf
	payload bool                 // the message had elements
}

// begin begins a message of n bytes.
func (m *message) begin(c *call, side parser.Side, number, n int) {
	m.call, m.side, m.number = c, side, number
	m.scan.Begin(m, n)
}

// depth returns the number of fields that p names.
func depth(p protoscan.Path) (n int) {
	for ; p > 0; p >>= 8 {
		n++
	}
	return n
}

// Next implements grpc.Message.
func (m *message) Next(b []byte, sure int) parser.Segment {
	left := m.scan.Emitting()
	if left == 0 {
		n, _ := m.scan.Next(b)
		if m.scan.Broken() && m.inner != 0 {
			m.call.facts.tried(m.at(m.inner), aLeaf, types{}) // not always a message
			m.inner = 0
		}
		return parser.Segment{Len: n}
	}
	b = b[:min(len(b), left)]
	seg := m.elements(b, sure)
	if m.trying {
		m.trial.feed(b[:seg.Len])
	} else {
		m.sample.feed(b[:seg.Len])
	}
	if seg.Len == left {
		m.end()
	}
	m.scan.Take(seg.Len)
	return seg
}

// elements classifies a prefix of a leaf's next bytes.
func (m *message) elements(b []byte, sure int) parser.Segment {
	if m.left > 0 {
		n := min(m.left, len(b))
		m.left -= n
		return parser.Segment{Len: n}
	}
	rest := m.value.Size - m.value.Off
	if rest == 0 {
		return parser.Segment{Len: len(b)}
	}
	seg := parser.Segment{Len: min(len(b), rest), Tensor: m.value}
	if rest <= sure { // else a frame ends within the tensor, maybe within an element
		seg.Tensor.Hold = rest
	}
	m.value.Off += seg.Len
	m.payload = true
	return seg
}

// end ends a field.
func (m *message) end() {
	if !m.trying {
		m.call.facts.ended(m.context, m.sample.verdict())
		return
	}
	for _, f := range m.trial.end() {
		m.call.facts.tried(m.at(f.path), f.kind, f.types)
	}
	m.trial = nil // it is large
}

// Held implements http2.Sized, by its own side's calls alone.
func (m *message) Held() int {
	const perLeaf = int(unsafe.Sizeof(context{})) + 8 + 24 // of the map: with the room that it keeps free
	n := int(unsafe.Sizeof(*m)) + m.scan.Held() + len(m.alike)*perLeaf
	if m.sample != nil {
		n += int(unsafe.Sizeof(*m.sample))
	}
	if m.trial != nil {
		n += m.trial.held()
	}
	return n
}

// at returns the place of a field.
func (m *message) at(p protoscan.Path) place {
	return place{methodKey{m.call.scope, m.call.method, m.side}, p}
}

// Label implements [grpc.Named].
func (m *message) Label() parser.Label { return m.label }

// End implements grpc.Message.
func (m *message) End() (payload bool) {
	return m.payload
}

// Field implements protoscan.Reader.
func (m *message) Field(p protoscan.Path, n int) protoscan.Action {
	d := depth(p)
	switch {
	case n <= maxText:
		return protoscan.Keep
	case n < minField || d > maxDepth:
		return protoscan.Skip
	}
	m.field = m.at(p)
	f := m.call.facts.at(m.field)
	switch f.kind {
	case aMessage:
		m.inner, m.texts[d], m.words[d] = p, 0, ""
		return protoscan.Descend
	case untried:
		if m.trial == nil {
			m.trial = new(trial)
		}
		m.trial.begin(p, n)
	}
	m.trying = f.kind == untried
	m.open(p, n)
	return protoscan.Emit
}

// open begins a leaf of n bytes.
func (m *message) open(p protoscan.Path, n int) {
	if m.sample == nil {
		m.sample = new(sampler)
	}
	m.sample.begin()
	m.context = context{m.field, m.texts[depth(p)-1], n}
	texts, t := m.call.facts.leaf(m.context)
	name := m.context
	name.texts = texts
	if m.alike == nil {
		m.alike = map[context]int{}
	}
	which, known := m.alike[name]
	if !known && len(m.alike) >= maxLeaves {
		m.left, m.value = n, tensor.Tensor{}
		return
	}
	m.alike[name]++
	text := ""
	if texts != 0 {
		text = m.words[depth(p)-1]
	}
	m.label = labelOf(m.call.name, text, p, which, m.number)
	unit, host := max(1, t.dtype.Size()), uint64(0) // a server sends all clients the same
	if m.side == parser.Client {
		host = m.call.host
	}
	size := (n - t.phase) / unit * unit
	base := mix.Words(baseOfLeaf, m.call.key, uint64(m.side)<<32|uint64(t.dtype), uint64(p), texts, uint64(which)<<32|uint64(m.number), uint64(n), host)
	m.left = t.phase
	m.value = tensor.Tensor{
		Key:   mix.Words(keyOfLeaf, base, uint64(m.side), m.call.host, uint64(m.call.lane)),
		DType: t.dtype, Size: size, Base: base, Why: tensor.RoleUnproved,
		Repeats: m.trying || t.known(),
	}
	if !t.known() {
		m.value.Why = tensor.DTypeUnknown
	}
}

// Kept implements protoscan.Reader: texts are part of the names of leaves beside them.
func (m *message) Kept(p protoscan.Path, b []byte) {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return
		}
	}
	if d := depth(p) - 1; d <= maxDepth {
		m.texts[d] = mix.Words(textsOfMessage, m.texts[d], uint64(p), xxhash.Sum64(b))
		m.words[d] = npy.Short(string(b), maxLabel)
	}
}

// Number implements protoscan.Reader.
func (*message) Number(protoscan.Path, uint64) {}

// Leave implements protoscan.Reader.
func (m *message) Leave(p protoscan.Path) { m.inner = p >> 8 }
