package gloo

import (
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mesh"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// common holds the facts that the two directions of a connection share.
type common struct {
	conn parser.Conn

	meshes *mesh.Table // nil: there are no records

	mu       sync.Mutex // guards the fields below, and all of both directions
	ranks    ranks
	members  members
	greeting greeting
	others   others
	meta     metadata
}

// sums reports whether the job's sums are configured to be gradients.
func (x *common) sums() bool { return x.conn.Sums == parser.SumsGradients }

// A flow names one direction of a connection to the code that follows its messages.
type flow struct {
	conn *common
	side parser.Side
	seed uint64
	ends uint64
}

// judges reports whether to find out the type of the elements that this side sends. Values of the other side may have
// been restored from a lossy codec.
func (f *flow) judges() bool { return f.side == f.conn.conn.Own }

// partOf names the part of a sum that message k of an all-reduce holds, which has that number on the connection, and
// reports whether it is the result. It names none where the content check has no use for it.
func (f *flow) partOf(p *plan, number uint64, k int) (part uint64, whole bool) {
	first, mine, ok := p.part(k)
	if !ok || !f.conn.sums() {
		return 0, false
	}
	side := f.side
	if !mine {
		side = parser.Client + parser.Server - side
	}
	return mix.Words(keyOfPart, uint64(side), number, uint64(first)), k >= p.phase()
}
