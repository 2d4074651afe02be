package send

import "github.com/gradproxy/gradproxy/proxy/memory"

// unsent are bytes that a Sender at rest has read from the app, for the Sender that continues it.
type unsent struct {
	alloc  *memory.Allocator // the pieces are taken from its budget
	pieces []memory.Buffer
	bytes  int
}

// drop gives back the memory.
func (u *unsent) drop() {
	for _, p := range u.pieces {
		u.alloc.Put(p)
	}
	*u = unsent{}
}
