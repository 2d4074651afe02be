package tensorflow

import (
	"strings"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
)

func newConnection(c parser.Conn, f *facts) *connection {
	s := scopeOf(c)
	return &connection{conn: c, facts: f, scope: s, seed: s.seed()}
}

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

// Speaks implements [grpc.Service].
func (*connection) Speaks(path string) bool {
	for _, s := range services {
		if strings.HasPrefix(path, s) {
			return true
		}
	}
	return false
}
