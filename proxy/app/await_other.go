//go:build !unix

package app

// CanAwait reports whether Await can wait. On this system it cannot.
func (c *Conn) CanAwait() bool { return false }

// Await returns at once on this system.
func (c *Conn) Await() {}
