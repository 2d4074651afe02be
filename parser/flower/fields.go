package flower

import (
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// Next classifies a prefix of b, the next bytes of the message. sure is how many bytes, from b's first on, the sender
// writes without waiting for an answer.
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

// Leave implements protoscan.Reader.
func (m *message) Leave(protoscan.Path) {}

// The bounds of the names that a message's fields are known by.
const (
	maxKeys = 1 << 10 // arrays of a record; the others are known by their numbers
	maxText = 1 << 10 // bytes of a name or an id; longer ones are skipped
)

// Field implements protoscan.Reader.
func (m *message) Field(p protoscan.Path, size int) protoscan.Action {
	switch m.layout[p] {
	case initial:
		m.initial = true
		return protoscan.Descend
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
		m.initial = strings.HasPrefix(string(b), "getparametersres.")
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
