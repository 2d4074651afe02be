package pslite

import (
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

var _ parser.Labeler = (*stream)(nil)

// Label implements parser.Labeler: it tells the two nodes of a message, and the key of its array.
func (s *stream) Label(tensor.Tensor) (l parser.Label) {
	f, r, m := s.conn.facts, s.route(), &s.msg
	f.mu.Lock()
	defer f.mu.Unlock()
	j, _, ok := s.conn.identify(r, &m.meta)
	if !ok {
		return l
	}
	l.From = nodeName(r.from)
	if to := s.conn.receiver(j, r); to < 2*maxNodes+8 {
		l.To = nodeName(int(to))
	}
	if x := layoutOf(&m.meta, &m.keys, s.frame.size); x.known {
		l.Name = fmt.Sprintf("key %d", x.key)
	}
	return l
}

// nodeName returns the name of a node, as ps-lite numbers nodes (ps::Postoffice::WorkerRankToID, ServerRankToID); "":
// the id is none.
func nodeName(id int) string {
	switch {
	case id == scheduler:
		return "scheduler"
	case worker(id):
		return fmt.Sprintf("worker %d", (id-9)/2)
	case server(id):
		return fmt.Sprintf("server %d", (id-8)/2)
	}
	return ""
}
