//go:build !unix

package tunnel

import "net"

// nonBlocking returns nil: here every write waits until the connection has taken all.
func nonBlocking(net.Conn) func(p []byte) (int, error) { return nil }

// peekFirst returns at once.
func peekFirst(net.Conn) error { return nil }
