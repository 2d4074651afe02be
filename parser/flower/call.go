package flower

import (
	"strings"
	"sync"
)

// A call is one call of a method.
type call struct {
	conn   *connection
	path   string
	method *method

	mu     sync.Mutex
	object objectID // that the request names
	named  bool     // it has named one
}

// open begins a call, or returns nil if nobody looks at its messages.
func (x *connection) open(path string) *call {
	m := methods[path]
	if m == nil {
		return nil
	}
	return &call{conn: x, path: strings.Clone(path), method: m} // path may be part of a long text
}

// name notes the object that the request names.
func (c *call) name(id objectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.object, c.named = id, true
}

func (c *call) nameOf() (objectID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.object, c.named
}
