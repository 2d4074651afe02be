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
// # Tensors
//
// Every payload is a tensor: Size is the payload's length, Hold the rest of it, since a sender writes all of an op at
// once. Preambles, notifications and the first 8 bytes are opaque, and nothing waits for them. The wire says neither
// the element type nor the shape, the operator, the ranks or the phase. The rest is inferred, and Unknown or a zero
// stands where it cannot be.
//
// # Roles
//
// Only all-reduces can be anything but [tensor.Exact]. Nothing on the wire proves that one sums up gradients: averaged
// weights have the same lengths. The process that sends them can prove it ([parser.Calls], proof.go): a sum that
// DistributedDataParallel calls in the memory of a bucket of its own is a gradient. The process group of a connection
// is not on the wire either: the lengths of whole all-reduces rule groups out, and all that are left must agree. The
// first values of a bucket travel exactly, until it is likely that the bucket stays.
//
// Without such calls all-reduces are [tensor.Unknown], unless the user says that they are gradients
// ([parser.SumsGradients]). Then the parser can only take the role away:
//
//   - The process's calls, where they are seen, must not say otherwise: a maximum is no gradient, nor is a sum of
//     another caller in a process whose DistributedDataParallel sums its own buckets.
//   - The sequence of all-reduces must have passed twice, whole, which makes it a learnt step (learn.go where tags
//     count the collectives, constant.go where all tags are the same), or be the sequence that DistributedDataParallel
//     has announced, and have passed once (model.go, layout.go, bucket.go, tile.go). An all-reduce out of its place, or
//     without a bucket's size, is not a gradient.
//   - The elements' type must be known: from two values that looked alike (dtype.go), or from the bucket's size.
//   - Sums of fewer than 1000 elements are not gradients.
//
// A gradient is a message of the ring's first phase, where segments are partial sums; a message of the second phase, or
// of a phase that is not clear, is [tensor.Aggregate]. The phase is clear while all plans of the ring that fit agree on
// it (plan.go, rings.go). If an all-reduce ends otherwise, and some of its messages have been called gradients, the
// error wraps [parser.ErrReset]; any other surprise costs roles only.
//
// # Parts
//
// Where the user says that all sums are gradients, each message of an all-reduce whose plan is known has the name of
// its part of the sum ([tensor.Tensor].Part). The message of the first phase with some ranks' inputs and the message of
// the second phase with the result have the same name, so that the result can be compared with the inputs. Among two
// ranks the result comes the other way. Among more a rank's own messages of the second phase have the results of all
// its messages of the first, except the results of one rank's segments, which it passes on to nobody. Without the plan,
// which the lengths or the number of ranks tell, messages have no names.
//
// A message of a sum of a model's size has places in the weights that DistributedDataParallel has broadcast
// ([tensor.Tensor].Placed, weights.go), so that averages of weights are told from gradients. The sender's rank is not
// on the wire, so each rank that may have sent the message makes a place.
//
// # Keys
//
// A tensor of a training step keeps its key from its second value on (key.go), before it has a role, so that the value
// before the first one with a role is there to be compared. A changed sequence has new keys. Keys end with their
// connection; a part of a bucket also has an origin ([tensor.Tensor].Origin), by which the residual is found again in a
// process group that is made anew for the same buckets.
//
// # Limits
//
// Where all tags are the same, a stack of equal layers in the first step can pass for steps of one layer; keys are then
// shared until the step ends. Runs of 1 MiB segments have no clear phase there. Steps of more than 1000 all-reduces, or
// 8192 messages where all tags are the same, are not learnt. Models with parameters that have no dimensions are not
// understood, and then learnt like any sequence; the same holds for models of more than 1024 buckets.
//
// Memory is bounded whatever a peer sends: about 2 MiB for each direction, and 24 MiB for the models of a job that each
// peer, or this site, has told.
package gloo

import (
	"sync"

	"github.com/gradproxy/gradproxy/parser"
)

// Protocol is Gloo's TCP transport. The zero Protocol is ready for use; it must not be copied after first use.
type Protocol struct {
	mu   sync.Mutex
	jobs map[string]*job // configured ones
}

var _ parser.Protocol = (*Protocol)(nil)

// String returns "gloo".
func (*Protocol) String() string { return "gloo" }

// Traits promises nothing: a lost connection ends the process group, and the wire proves no role.
func (*Protocol) Traits() parser.Traits { return parser.Traits{} }

// New returns the parsers of a connection's two directions. The connections of a configured job with one peer share the
// facts on its models, and the ones that ranks of this site have told are shared with all peers; a connection without a
// job shares nothing. Where neither end's site has told of a model, the ones of the job's other peers count whose
// all-gathers passed. First weights are compared whoever has told them, since that only ever ends loss.
func (p *Protocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	x := newConnection(c, p.job(c.Job))
	return &stream{dir: &x.directions[parser.Client], state: hello}, &stream{dir: &x.directions[parser.Server], state: preamble}
}

// job returns a configured job, or one that nobody else has if there is no name.
func (p *Protocol) job(name string) *job {
	if name == "" {
		return new(job)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs == nil {
		p.jobs = map[string]*job{}
	}
	if p.jobs[name] == nil {
		p.jobs[name] = new(job)
	}
	return p.jobs[name]
}
