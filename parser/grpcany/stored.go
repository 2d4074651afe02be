package grpcany

import (
	"unsafe"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mesh"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// maxValue is the length of the longest response that is read, in bytes.
const maxValue = mesh.MaxKey + mesh.MaxRecord + 64

// A stored message is a response to getValue. All of it is opaque.
type stored struct {
	call *call
	scan protoscan.Scanner
	key  string
}

func newStored(c *call, n int) *stored {
	s := &stored{call: c}
	s.scan.Begin(s, n)
	return s
}

// Next implements grpc.Message.
func (s *stored) Next(b []byte, _ int) parser.Segment {
	n, _ := s.scan.Next(b)
	return parser.Segment{Len: n}
}

// End implements grpc.Message.
func (s *stored) End() (payload bool) { return false }

// Held implements http2.Sized.
func (s *stored) Held() int { return int(unsafe.Sizeof(*s)) + s.scan.Held() + len(s.key) }

// Field implements protoscan.Reader.
func (s *stored) Field(p protoscan.Path, n int) protoscan.Action {
	switch {
	case p == protoscan.Of(1):
		s.key = ""
		return protoscan.Descend
	case p == protoscan.Of(1, 1) && n <= mesh.MaxKey, p == protoscan.Of(1, 2) && n <= mesh.MaxRecord:
		return protoscan.Keep
	}
	return protoscan.Skip
}

// Kept implements protoscan.Reader.
func (s *stored) Kept(p protoscan.Path, b []byte) {
	if p == protoscan.Of(1, 1) {
		s.key = string(b)
		return
	}
	s.call.meshes.Note(s.call.job, s.call.peer, s.key, b)
}

// Number implements protoscan.Reader.
func (*stored) Number(protoscan.Path, uint64) {}

// Leave implements protoscan.Reader.
func (*stored) Leave(protoscan.Path) {}
