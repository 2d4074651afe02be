package ddp

import (
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// Calls are the all-reduces that a Replica has called, as probes see the all-reduces of a PyTorch process. They
// implement parser.Calls.
type Calls struct {
	mu    sync.Mutex
	byTag map[uint32]parser.Call
	ended bool // the connection carried something else
}

// remembered is the number of tags after which a call is forgotten: its all-reduce is over by then.
const remembered = 1 << 10

// note notes the all-reduce of a bucket that the group is about to be asked for.
func (c *Calls) note(g *gloosim.Group, b *bucket) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byTag == nil {
		c.byTag = map[uint32]parser.Call{}
	}
	tag := g.NextTag()
	c.byTag[tag] = parser.Call{Source: 1, Caller: parser.DDPReducer, Sum: true, Elements: len(b.b) / float32Len, DType: tensor.Float32,
		Ranks: g.Size(), Buffer: b.id}
	delete(c.byTag, tag-remembered)
}

// Of appends the call of that tag, if the Replica has made it.
func (c *Calls) Of(dst []parser.Call, tag uint32) (calls []parser.Call, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call, ok := c.byTag[tag]; ok && !c.ended {
		return append(dst, call), true
	}
	return dst, true
}

// Proved implements parser.Calls.
func (*Calls) Proved() {}

// Contradicted ends the proof.
func (c *Calls) Contradicted(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}
