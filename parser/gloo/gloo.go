// Package gloo finds the tensors in connections of Gloo's TCP transport, which carries PyTorch's "gloo" backend, JAX's
// CPU collectives and Horovod (https://github.com/pytorch/gloo, gloo/transport/tcp).
//
// # Wire
//
// There is no version, magic number or checksum. A connection is one pair of ranks of one process group. In newer
// versions of Gloo the side that connects first sends 8 bytes, a small integer that tells the other side which pair
// this is (variant B; variant A, before May 2023, lacks them). Then both directions are sequences of ops: a preamble of
// six little-endian 64-bit integers and, for the first two opcodes, length bytes of payload.
//
//	 0  nbytes   48 + the bytes of payload that follow
//	 8  opcode   0 send buffer, 1 send unbound buffer, 2 notify send ready, 3 notify receive ready
//	16  slot     bits 63..56 kind, 55..24 tag, 7..0 delta: names the transfer
//	24  offset   0 but for opcode 0
//	32  length   bytes of the transfer
//	40  roffset  0 but for opcode 0
//
// A payload of opcode 1 follows after the sender's notify send ready and the receiver's notify receive ready for it,
// first in, first out within a slot. Between slots there is no order.
//
// # What is a tensor
//
// Every payload is one: Size is the payload's length. The wire says neither the element type nor the shape, the
// operator, the ranks or the phase of a ring; package gloo infers what it can and says Unknown otherwise. Preambles,
// notifications and the first 8 bytes are opaque, and nothing waits for them.
package gloo

import (
	"sync"

	"github.com/gradproxy/gradproxy/parser"
)

// Protocol is Gloo's TCP transport. The zero Protocol is ready for use; it must not be copied after first use.
type Protocol struct {
	mu   sync.Mutex
	jobs map[string]*facts
}

var _ parser.Protocol = (*Protocol)(nil)

// String returns "gloo".
func (*Protocol) String() string { return "gloo" }

// New returns the parsers of a connection's two directions. The connections of a configured job share what they learn
// of its models; one without a job stands alone.
func (p *Protocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	x := newConnection(c, p.facts(c.Job))
	return &stream{dir: &x.directions[parser.Client], state: hello}, &stream{dir: &x.directions[parser.Server], state: preamble}
}

// facts returns those of a job.
func (p *Protocol) facts(job string) *facts {
	if job == "" {
		return new(facts)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs == nil {
		p.jobs = map[string]*facts{}
	}
	f := p.jobs[job]
	if f == nil {
		f = new(facts)
		p.jobs[job] = f
	}
	return f
}
