// Package grpcany finds tensors in gRPC calls of any service, such as OpenFL's or a parameter server that a user wrote, without a schema.
//
// # Messages
//
// A message is a Protocol Buffer, whose fields have numbers and lengths but no names, and where they have a length no types. A field of at least 1 KiB may be
// a message, bytes, a text, or packed numbers. The first such field at a place (a method, a side, and the numbers of the fields that it lies in) is taken for one value, and is tried
// (trial.go): it is a message if its bytes are fields up to its very end, and else a leaf. From then on fields at that place are read likewise.
//
// # Tensors
//
// A leaf is a tensor of unknown role, which therefore loses nothing. Its type is probed from the bits of values before it (bits.go). Its Base
// is that of the same field in the last message of the method, so that it travels as a difference to that, and once where a server sends it to many clients:
//
//	place, size and type; which of the leaves of that place in its message it is; for a client's also the client's host
//	texts of up to 128 bytes beside it, such as a tensor's name, unless they are others in every message
//	the message's number in its call, if calls of the method have ended with several messages
//
// # Limits
//
// Memory is bounded, whatever a peer sends: of all jobs together 2^12 places and 2^14 texts are known; of a connection 32 calls are read at a time. Compressed messages are opaque, and
// fields more than 6 deep.
package grpcany

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// Protocol is gRPC of services that no other parser knows. The zero Protocol is ready for use; it must not be copied after first use.
type Protocol struct{ facts facts }

var _ parser.Protocol = (*Protocol)(nil)

// String returns "grpc".
func (*Protocol) String() string { return "grpc" }

// Traits: nothing is known of an app after a lost connection, and no tensor loses anything.
func (*Protocol) Traits() parser.Traits { return parser.Traits{} }

// New returns the parsers of a connection's two directions.
func (p *Protocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	scope, seed := mix.Job(c.Job, c.Peer, c.Server)
	client := c.Client.Addr().As16()
	return grpc.New(&service{facts: &p.facts, scope: scope, seed: seed, host: xxhash.Sum64(client[:])})
}

// others are the beginnings of methods that other parsers read.
var others = []string{"/tensorflow.WorkerService/", "/tensorflow.MasterService/", "/tensorflow.CoordinationService/", "/tensorflow.eager.EagerService/",
	"/flwr.proto.FlowerService/", "/flwr.proto.Fleet/", "/streamer.Streamer/"}

// maxCalls bounds the calls of a connection that are read at a time.
const maxCalls = 32

// A service reads the calls of a connection.
type service struct {
	facts *facts
	scope uint64 // names the connections that share facts
	seed  uint64 // of the job's tensors, the same at both proxies
	host  uint64 // names the client's host
	live  [maxCalls]*call
}

// Speaks implements grpc.Service.
func (*service) Speaks(path string) bool {
	return strings.Count(path, "/") == 2 && path[0] == '/' && !slices.ContainsFunc(others, func(o string) bool { return strings.HasPrefix(path, o) })
}

// Call implements grpc.Service.
func (s *service) Call(path string, stream *grpc.Stream) grpc.Call {
	lane := -1
	for i, c := range s.live {
		if c != nil && c.stream.Over() {
			c.over()
			c, s.live[i] = nil, nil
		}
		if c == nil && lane < 0 {
			lane = i
		}
	}
	if lane < 0 {
		return nil
	}
	c := &call{service: s, stream: stream, lane: lane, method: mix.Words(s.scope, xxhash.Sum64String(path))}
	c.key = mix.Words(s.seed, xxhash.Sum64String(path))
	s.live[lane] = c
	return c
}

// A call is one call.
type call struct {
	*service
	stream *grpc.Stream
	lane   int    // that no other call under way has: tensors of two calls may interleave
	method uint64 // names the method among the methods of all jobs
	key    uint64 // of its tensors, the same at both proxies
	sides  [2]struct {
		several bool // messages have come
	}
}

// over takes note of the end of a call.
func (c *call) over() {
	for side := range c.sides {
		if c.sides[side].several {
			c.facts.number(methodKey{c.method, parser.Side(side)})
		}
	}
}

// Message implements grpc.Call.
func (c *call) Message(h grpc.Head) grpc.Message {
	s := &c.sides[h.From]
	s.several = h.Number > 0
	if h.Compressed || h.Len < minField {
		return nil
	}
	number := 0
	if h.Number > 0 && c.facts.numbered(methodKey{c.method, h.From}) {
		number = h.Number
	}
	m := new(message) // of which nothing is left when its call is over, in order or not
	m.begin(c, h.From, number, h.Len)
	return m
}
