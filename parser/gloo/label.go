package gloo

import (
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

var _ parser.Labeler = (*stream)(nil)

// Label implements parser.Labeler: it tells the ranks of the two ends in their process group, or their addresses, whose
// ports tell processes of one host apart. Of an all-reduce it tells the place among the buckets of a model, or in a
// learnt step, and the message's place in the ring. If all tags are the same, it tells the message's place in the step.
func (s *stream) Label(tensor.Tensor) (l parser.Label) {
	s.dir.conn.mu.Lock()
	defer s.dir.conn.mu.Unlock()
	side := s.dir.side
	l.From, l.To = s.dir.conn.nameOf(side), s.dir.conn.nameOf(parser.Client+parser.Server-side)
	c := &s.dir.counted
	if at := s.dir.constant.place; at > 0 {
		l.Name = fmt.Sprintf("message %d of %d", at, len(s.dir.constant.learnt))
		return l
	}
	e := c.find(s.watch.op.slot.tag())
	if e == nil || s.watch.op.slot.kind() != allReduce {
		return l
	}
	switch {
	case e.bucket != nil && e.step != nil:
		for q := range e.step.reduces {
			if &e.step.reduces[q] == e.bucket {
				l.Name = fmt.Sprintf("bucket %d of %d", q+1, len(e.step.reduces))
			}
		}
	case e.place >= 0 && c.learnt != nil:
		l.Name = fmt.Sprintf("sum %d of %d", e.place+1, len(c.learnt.reduces))
	}
	if l.Name != "" && e.lengths.count > 0 {
		l.Name += fmt.Sprintf(", message %d", e.lengths.count)
	}
	return l
}
