package grpcany

import (
	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/internal/mesh"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// maxCalls bounds the calls of a connection that are read at a time.
const maxCalls = 32

// getValue is the method by which a process of a JAX job reads a value of the job's coordination service
// (https://github.com/openxla/xla, coordination_service.proto). Its response has an entry in field 1, with the key in
// field 1 and the value in field 2.
const getValue = "/xla.coordination.CoordinationService/GetKeyValue"

// A service reads the calls of a connection.
type service struct {
	facts  *facts
	meshes *mesh.Table
	job    string // as configured, or ""
	peer   string
	scope  mix.Scope
	seed   uint64 // of the job's tensors, the same at both proxies
	host   uint64 // names the client's host
	live   [maxCalls]*call
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
	c := &call{service: s, stream: stream, lane: lane, method: xxhash.Sum64String(path), name: methodName(path)}
	c.key = mix.Words(s.seed, xxhash.Sum64String(path))
	c.value = s.meshes != nil && path == getValue
	s.live[lane] = c
	return c
}

// A call is one call.
type call struct {
	*service
	stream *grpc.Stream
	lane   int    // that no other call under way has: tensors of two calls may interleave
	method uint64 // hash of its path
	name   string // of the method, for people
	key    uint64 // of its tensors, the same at both proxies
	value  bool   // its response is a value of JAX's coordination service
	sides  [2]struct {
		several bool // messages have come
	}
}

// over takes note of the end of a call.
func (c *call) over() {
	for side := range c.sides {
		if c.sides[side].several {
			c.facts.number(methodKey{c.scope, c.method, parser.Side(side)})
		}
	}
}
