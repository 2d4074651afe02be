package flower

import (
	"unsafe"

	"github.com/gradproxy/gradproxy/parser"
)

// Held implements parser.Sized. Facts are bounded for all connections together, and left out.
func (s *httpStream) Held() int {
	n := int(unsafe.Sizeof(*s)) + s.head.Held()
	if s.message != nil {
		n += s.message.Held()
	} else if s.named != nil {
		n += s.named.Held()
	}
	return n
}

var _ parser.Sized = (*httpStream)(nil)

// Held implements http2.Sized, by its own side's calls alone.
func (m *message) Held() int {
	return int(unsafe.Sizeof(*m)) + m.scan.Held() + m.file.Held() + cap(m.object.head) + (8+16+maxLabel)*cap(m.keys)
}
