package nvflare

import (
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/tensor"
)

var (
	_ grpc.Named     = message{}
	_ parser.Labeler = (*plain)(nil)
	_ parser.Labeler = (*webSocket)(nil)
)

// label returns the name and the shape of the array whose tensor next has returned last, and the two sites. If the
// tensor is a piece of the array, the name says where the piece begins.
func (s *sfm) label() parser.Label {
	x := s.last
	if x == nil {
		return parser.Label{}
	}
	for i := range x.regions {
		r := &x.regions[i]
		if at := s.at; at < r.from || at >= r.to {
			continue
		}
		l := r.label
		if from := s.at - r.from; from > 0 || s.size < r.to-r.from {
			l.Name += fmt.Sprintf(", from byte %d", from)
		}
		return l
	}
	return parser.Label{}
}

// Label implements [grpc.Named].
func (m message) Label() parser.Label { return m.frames.label() }

// Label implements [parser.Labeler].
func (p *plain) Label(tensor.Tensor) parser.Label { return p.frames.label() }

// Label implements [parser.Labeler].
func (w *webSocket) Label(tensor.Tensor) parser.Label { return w.frames.label() }
