// Package gloo finds the tensors in connections of Gloo's TCP transport, which carries PyTorch's "gloo" backend, JAX's
// CPU collectives and Horovod (https://github.com/pytorch/gloo, gloo/transport/tcp).
//
// # Wire
//
// The wire has no version, magic number or checksum. A connection joins one pair of ranks of one process group. In
// newer versions of Gloo the side that connects first sends 8 bytes, a small integer that tells the other side which
// pair this is (variant B; variant A, before May 2023, lacks them). Then each direction is a sequence of ops. An op is
// a preamble of six little-endian 64-bit integers and, for the first two opcodes, length bytes of payload.
//
//	 0  nbytes   48 + the bytes of payload that follow
//	 8  opcode   0 send buffer, 1 send unbound buffer, 2 notify send ready, 3 notify receive ready
//	16  slot     bits 63..56 kind, 55..24 tag, 7..0 delta: names the transfer
//	24  offset   0 but for opcode 0
//	32  length   bytes of the transfer
//	40  roffset  0 but for opcode 0
//
// A payload of opcode 1 follows after the sender's notify send ready and the receiver's notify receive ready for it.
// Within a slot payloads keep their order; between slots there is no order.
//
// # Tensors
//
// Every payload is a tensor. Size is the payload's length, and Hold is the rest of it, since a sender writes the whole
// op at once. Preambles, notifications and the first 8 bytes are opaque, and nothing waits for them. The wire does not
// say the element type, the shape, the operator, the ranks or the phase. The parser infers them; a fact that it
// cannot infer is Unknown or zero.
//
// # Roles
//
// All payloads but the ones of all-reduces are [tensor.Exact]. Nothing on the wire proves that an all-reduce sums
// gradients: averaged weights have the same lengths. The calls of the sending process can prove it ([parser.Calls],
// proof.go): a sum that DistributedDataParallel calls in the memory of one of its buckets is a gradient. The wire does
// not name the process group of a connection either. The lengths of whole all-reduces rule groups out, and all groups
// that are left must agree. The first values of a bucket travel exactly, until it is likely that the bucket stays.
//
// Without such calls all-reduces are [tensor.Unknown], unless the user says that they are gradients
// ([parser.SumsGradients]). Then the parser can only take the role away:
//
//   - The process's calls, if they are seen, must not say otherwise. A maximum is not a gradient, and neither is a sum
//     of another caller in a process whose DistributedDataParallel sums its own buckets.
//   - The sequence of all-reduces must have passed twice as a whole, which makes it a learnt step (learn.go if tags
//     count the collectives, constant.go if all tags are the same). Or DistributedDataParallel must have announced the
//     sequence, and it must have passed once (model.go, layout.go, bucket.go, tile.go). An all-reduce out of its place,
//     or without a bucket's size, is not a gradient.
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
// If the user says that all sums are gradients, each message of an all-reduce whose plan is known names its part of the
// sum ([tensor.Tensor].Part). The message of the first phase that has some ranks' inputs, and the message of the second
// phase that has their result, have the same name, so that the result can be compared with the inputs. Between two
// ranks the result comes the other way. Among more ranks, a rank's messages of the second phase have the results of its
// messages of the first, except for the segments of one rank, which it passes on to nobody. The plan is known from the
// lengths or from the number of ranks; without it messages have no names.
//
// A message of a sum that has a model's size has places in the weights that DistributedDataParallel has broadcast
// ([tensor.Tensor].Placed, weights.go), so that averaged weights can be told from gradients. The sender's rank is not
// on the wire, so there is a place for each rank that may have sent the message.
//
// # Ranks
//
// People see the ranks of a connection's two ends in their process group, once they are certain; nothing else depends
// on them. The lengths of a whole all-reduce may fit one rank only, or the process's memory may tell its rank
// (place.go). A JAX job's coordination service tells the ranks: its record of the listener has the number with which
// the connection begins ([mesh.Table]). In a configured job the records that pass here count for all peers, whoever
// tells them: the app connects by the same records.
//
// # Keys
//
// A tensor of a training step has its key from its second value on (key.go), before it has a role, so that the first
// value with a role can be compared with the value before it. A changed sequence has new keys. Keys end with their
// connection. A part of a bucket also has an origin ([tensor.Tensor].Origin), by which its residual is found again when
// a process group is made anew for the same buckets.
//
// # Limits
//
// A stack of equal layers in the first step can pass for steps of one layer; then layers share keys until the step ends
// or, if there are more than three and tags count, until the second step does. Steps that have nothing else cannot be
// told from steps of one layer. If all tags are the same, runs of 1 MiB segments have no clear phase. Steps of more
// than 1000 all-reduces are not learnt, nor, if all tags are the same, steps of more than 8192 messages. The
// announcements of a model that has parameters without dimensions, or more than 1024 buckets, are not understood; the
// model's steps are learnt like any sequence.
//
// Memory is bounded whatever a peer sends: about 2 MiB for each direction, and for each job 24 MiB for the models that
// one peer, or this site, has announced.
package gloo

import (
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mesh"
)

// Protocol is Gloo's TCP transport. The zero Protocol is ready for use; it must not be copied after first use.
type Protocol struct {
	Meshes *mesh.Table // has the ranks of JAX jobs; nil: they are not known

	mu   sync.Mutex
	jobs map[string]*job // configured ones
}

var _ parser.Protocol = (*Protocol)(nil)

// String returns "gloo".
func (*Protocol) String() string { return "gloo" }

// Traits promises nothing: a lost connection ends the process group, and the wire proves no role.
func (*Protocol) Traits() parser.Traits { return parser.Traits{} }

// New returns the parsers of a connection's two directions. The connections of a configured job share facts about its
// models: models that a peer's ranks have announced count for connections with that peer, and models that ranks of this
// site have announced count for all peers. If neither end's site has announced a model, the models of the job's other
// peers count whose all-gathers passed on the connection. A connection without a job shares nothing. A sum is compared
// with the first weights of all models of the job, since that can only end loss.
func (p *Protocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	x := newConnection(c, p.job(c.Job))
	x.meshes = p.Meshes
	return &stream{dir: &x.directions[parser.Client], state: hello}, &stream{dir: &x.directions[parser.Server], state: preamble}
}

// job returns the facts of a configured job. If there is no name it returns a job of the connection's own.
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
