//go:build unix

package app

// CanAwait reports whether Await can wait: a connection inside the process has no descriptor.
func (c *Conn) CanAwait() bool {
	_, inside := c.socket.(inProcess)
	return !inside
}

// Await waits until the app has sent a byte, has ended its direction, or its connection is broken, or until the read deadline. It reads nothing and takes no
// memory. Its caller's stack stays small: Go keeps the stack of a goroutine that waits, and halves it only where a quarter would do.
func (c *Conn) Await() {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Read(pending) // whatever ends it, the next Read tells
	}
}
