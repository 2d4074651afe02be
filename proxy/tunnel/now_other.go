//go:build !unix

package tunnel

import "net"

// writesNow returns nil: here every write waits until the connection has taken all.
func writesNow(net.Conn) func(p []byte) (int, error) { return nil }
