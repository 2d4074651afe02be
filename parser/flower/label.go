package flower

import (
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

var _ parser.Labeler = (*httpStream)(nil)

// Label tells the key of the array in its record, or its number, and its shape. Of an array that comes in several
// objects it tells which of its parts they hold.
func (m *message) Label() (l parser.Label) {
	if m.field == ofObject {
		if o := &m.object; o.known {
			l.Name = fmt.Sprintf("array %d", o.place.leaf)
			if o.place.record > 1 {
				l.Name += fmt.Sprintf(" of record %d", o.place.record)
			}
			if o.place.chunk > 0 || o.body == ofFirst && m.larger() {
				l.Name += fmt.Sprintf(", part %d", o.place.chunk+1)
			}
		}
		if m.object.body != ofFirst {
			return l
		}
	} else if i := m.arrays - 1; i >= 0 && i < len(m.names) {
		l.Name = m.names[i]
	} else {
		l.Name = fmt.Sprintf("array %d", m.arrays)
	}
	if h, ok := m.file.Header(); ok {
		l.Shape = h.Dims()
	}
	return l
}

// larger reports whether the array is larger than the part that comes.
func (m *message) larger() bool {
	h, _ := m.file.Header()
	size, _ := m.file.Elements()
	return h.Data > size
}

// Label implements parser.Labeler.
func (s *httpStream) Label(tensor.Tensor) parser.Label {
	if s.named == nil {
		return parser.Label{}
	}
	return s.named.Label()
}
