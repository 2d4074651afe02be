package send

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// A direction is the knowledge that all stages of a Sender share: the connection, memory for its bytes, and whose bytes
// they are.
type direction struct {
	conn  *path.Conn
	alloc memory.Allocator
	flow  policy.Flow // its Protocol is set once it is known
	namer parser.Parser
	come  int // tensors that came first on this connection
}

// label returns the name of a tensor whose first bytes the parser has just seen.
func (d *direction) label(t tensor.Tensor) tensors.Label {
	l := parser.LabelOf(d.namer, t)
	return tensors.Label{From: l.From, To: l.To, Name: l.Name, Shape: l.Shape}
}

// readSize is how much is read from the app at a time, room for a header before it included: with less the system
// calls cost more than the copy.
const readSize = 256 << 10

// verbatim names, in metrics, the codec of bytes that travel as they are.
const verbatim = policy.Verbatim
