package pslite

import (
	"unsafe"

	"github.com/gradproxy/gradproxy/parser"
)

// Held implements parser.Sized. Facts on jobs are bounded for all connections together, and left out.
func (s *stream) Held() int {
	n := int(unsafe.Sizeof(*s)) + cap(s.undecided)
	if s.msg.keys.hash != nil {
		n += int(unsafe.Sizeof(*s.msg.keys.hash))
	}
	return n
}

var _ parser.Sized = (*stream)(nil)
