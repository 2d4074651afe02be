package flower

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/tensor"
)

// beginObject begins an object of size bytes.
func (m *message) beginObject(size int) {
	m.object = object{size: size, head: m.object.head[:0]}
	o := &m.object
	id, named := m.call.nameOf()
	if !named {
		o.body = ofOther
		return
	}
	x := m.call.conn
	o.id = id
	o.place, o.known = x.facts.place(objectKey{x.scope, id})
}

// nextOfObject takes bytes of the object, at least one, and reports whether they are elements.
func (m *message) nextOfObject(b []byte) (n int, elements bool) {
	o := &m.object
	switch o.body {
	case ofHead:
		return m.headOfObject(b), false
	case ofFirst:
		n, elements = m.file.Next(b)
		if size, off := m.file.Elements(); !elements && size > 0 && off == 0 {
			h, _ := m.file.Header()
			if o.known {
				m.call.conn.facts.putType(arrayKey{m.call.conn.scope, o.place.array}, h.DType)
			}
			m.beginNamed(size, h.DType)
		}
		return n, elements
	case ofRest:
		return len(b), true
	}
	return len(b), false
}

// headOfObject takes bytes before the body, and returns their number.
func (m *message) headOfObject(b []byte) (n int) {
	o := &m.object
	for n < len(b) && o.body == ofHead {
		o.head = append(o.head, b[n])
		n++
		switch at := len(o.head); {
		case at <= len(chunkHead) && o.head[at-1] != chunkHead[at-1], at > maxChunkHead:
			o.body = ofOther
		case b[n-1] == 0:
			m.beginBody()
		}
	}
	if o.body == ofOther {
		return len(b)
	}
	return n
}

// beginBody begins the body of a chunk.
func (m *message) beginBody() {
	o := &m.object
	o.body = ofOther
	text := bytes.TrimSuffix(o.head[len(chunkHead):], []byte{0})
	size, err := strconv.Atoi(string(text))
	if err != nil || size < 1 || size != o.size-len(o.head) {
		return
	}
	if !o.known || o.place.chunk == 0 {
		o.body = ofFirst
		m.file.Begin(size, true)
		return
	}
	o.body = ofRest
	d, _ := m.call.conn.facts.typeOf(arrayKey{m.call.conn.scope, o.place.array})
	if size%d.Size() != 0 {
		d = tensor.NoDType
	}
	m.beginNamed(size, d)
}

// beginNamed begins the elements of the object, whose content its id names.
func (m *message) beginNamed(size int, d tensor.DType) {
	m.begin(size, d, m.baseOfObject(size, d))
	m.value.ID = mix.Words(contentOfObject, m.call.conn.seed, binary.LittleEndian.Uint64(m.object.id[:]))
}

// baseOfObject returns the Base of the elements in an object.
func (m *message) baseOfObject(size int, d tensor.DType) uint64 {
	o := &m.object
	if !o.known {
		return mix.Words(baseOfObject, m.call.conn.seed, binary.LittleEndian.Uint64(o.id[:]))
	}
	return mix.Words(baseOfChunk, o.place.array, uint64(o.place.chunk), uint64(size), uint64(d))
}
