// Package grpcany finds tensors in gRPC calls of any service, such as OpenFL's or a parameter server that a user wrote,
// without a schema.
//
// # Messages
//
// A message is a Protocol Buffer. Its fields have numbers but no names, and a field with a length has no type. A field
// of at least 1 KiB may be a message, bytes, a text, or packed numbers. The first such field at a place (a method, a
// side, and the numbers of the fields that it lies in) is a trial (trial.go): if its bytes are fields up to their end,
// fields at that place are messages from then on, and otherwise they are leaves.
//
// # Tensors
//
// A leaf is a tensor of unknown role, which therefore loses nothing. Its type is probed from the bits of values before
// it (bits.go). Its Base is that of the same field in the last message of the method, so that it travels as a
// difference to that, and once where a server sends it to many clients:
//
//	place, size and type; which of the leaves of that place in its message it is; for a client's also the client's host
//	texts of up to 128 bytes beside it, such as a tensor's name, unless they are others in every message
//	the message's number in its call, if calls of the method have ended with several messages
//
// A call that has failed may be made again, by gRPC's retry policy or by the framework, and a server may send other
// clients the same: so leaves are said to repeat if they are numbers, or if nothing is known of their place yet. Other
// bytes, such as images, are not said to repeat: they usually differ each time, and would take the room of tensors at
// the peer.
//
// # Ranks of JAX
//
// JAX's coordination service tells the processes of a job which rank of Gloo listens where. Its answers go to a
// [mesh.Table], where the parser of Gloo finds them.
//
// # Limits
//
// Memory is bounded, whatever a peer sends: of all jobs together 2^12 places and 2^14 texts are known; of a connection
// 32 calls are read at a time. Compressed messages are opaque, and fields more than 6 deep.
package grpcany

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/internal/mesh"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// Protocol is gRPC of services that no other parser knows. The zero Protocol is ready for use; it must not be copied
// after first use.
type Protocol struct {
	Meshes *mesh.Table // takes the ranks of JAX jobs; nil: nobody asks for them

	facts facts
}

var _ parser.Protocol = (*Protocol)(nil)

// String returns "grpc".
func (*Protocol) String() string { return "grpc" }

// Traits: nothing is known of an app after a lost connection, and no tensor loses anything.
func (*Protocol) Traits() parser.Traits { return parser.Traits{} }

// New returns the parsers of a connection's two directions.
func (p *Protocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	scope, seed := mix.Job(c.Job, c.Peer, c.Server)
	client := c.Client.Addr().As16()
	return grpc.New(&service{facts: &p.facts, meshes: p.Meshes, job: c.Job, peer: c.Peer, scope: scope, seed: seed, host: xxhash.Sum64(client[:])})
}

// others are the beginnings of methods that other parsers read.
var others = []string{"/tensorflow.WorkerService/", "/tensorflow.MasterService/", "/tensorflow.CoordinationService/", "/tensorflow.eager.EagerService/",
	"/flwr.proto.FlowerService/", "/flwr.proto.Fleet/", "/streamer.Streamer/"}

// Speaks implements grpc.Service.
func (*service) Speaks(path string) bool {
	return strings.Count(path, "/") == 2 && path[0] == '/' && !slices.ContainsFunc(others, func(o string) bool { return strings.HasPrefix(path, o) })
}

// Message implements grpc.Call.
func (c *call) Message(h grpc.Head) grpc.Message {
	s := &c.sides[h.From]
	s.several = h.Number > 0
	if c.value && h.From == parser.Server && !h.Compressed && h.Len <= maxValue {
		return newStored(c, h.Len)
	}
	if h.Compressed || h.Len < minField {
		return nil
	}
	number := 0
	if h.Number > 0 && c.facts.numbered(methodKey{c.scope, c.method, h.From}) {
		number = h.Number
	}
	m := new(message) // nothing is left of it when its call is over, in order or not
	m.begin(c, h.From, number, h.Len)
	return m
}

var _ grpc.Named = (*message)(nil)
