package tensorflow

import (
	"strings"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
)

// Protocol is TensorFlow's gRPC. The zero Protocol is ready for use; it must not be copied after first use.
type Protocol struct{ facts facts }

var _ parser.Protocol = (*Protocol)(nil)

// String returns "tensorflow".
func (*Protocol) String() string { return "tensorflow" }

// Traits: TensorFlow connects again after a lost connection, and goes on with the same graphs.
func (*Protocol) Traits() parser.Traits { return parser.Traits{Reconnects: true} }

// New returns the parsers of a connection's two directions.
func (p *Protocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	return grpc.New(newConnection(c, &p.facts))
}

// services are the gRPC services that each process of a cluster has.
var services = []string{"/tensorflow.WorkerService/", "/tensorflow.MasterService/", "/tensorflow.CoordinationService/", "/tensorflow.eager.EagerService/"}

// A connection reads the calls of one connection.
type connection struct {
	conn  parser.Conn
	facts *facts
	scope scope
	seed  uint64
	under [2]map[uint64]*message // by direction, then by key: tensors under way; each is used by its direction alone
}

func newConnection(c parser.Conn, f *facts) *connection {
	s := scopeOf(c)
	return &connection{conn: c, facts: f, scope: s, seed: s.seed(), under: [2]map[uint64]*message{{}, {}}}
}

// Speaks implements [grpc.Service].
func (*connection) Speaks(path string) bool {
	for _, s := range services {
		if strings.HasPrefix(path, s) {
			return true
		}
	}
	return false
}

// Call implements [grpc.Service].
func (x *connection) Call(path string, s *grpc.Stream) grpc.Call {
	c := &call{conn: x, stream: s, path: path}
	switch path {
	case "/tensorflow.WorkerService/RecvTensor":
		c.kind = recvTensor
	case "/tensorflow.WorkerService/RecvBuf":
		c.kind = recvBuf
	case "/tensorflow.WorkerService/CompleteInstance":
		c.kind = completeInstance
	case "/tensorflow.WorkerService/RegisterGraph":
		c.kind = registerGraph
	case "/tensorflow.WorkerService/RunGraph":
		c.kind = runGraph
	case "/tensorflow.MasterService/RunStep":
		c.kind = runStep
	case "/tensorflow.eager.EagerService/Enqueue", "/tensorflow.eager.EagerService/StreamingEnqueue":
		c.kind = enqueue
	case "/tensorflow.eager.EagerService/RunComponentFunction":
		c.kind = runFunction
	default:
		return nil
	}
	return c
}

// claim makes key the key of a tensor of m, unless another tensor of it is under way in m's direction: false.
func (x *connection) claim(m *message, key uint64) bool {
	under := x.under[m.head.From]
	if other := under[key]; other != nil && other != m && !other.ended && !other.call.stream.Over() {
		return false
	}
	if len(under) > maxUnder {
		for k, other := range under {
			if other.ended || other.call.stream.Over() {
				delete(under, k)
			}
		}
	}
	under[key] = m
	m.claimed = append(m.claimed, key)
	return true
}

// maxUnder is how many tensors under way are noted before such as have been reset are looked for.
const maxUnder = 64

// release gives up the keys of a message that has ended.
func (x *connection) release(m *message) {
	m.ended = true
	under := x.under[m.head.From]
	for _, k := range m.claimed {
		if under[k] == m {
			delete(under, k)
		}
	}
}
