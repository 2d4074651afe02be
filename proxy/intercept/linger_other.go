//go:build !unix

package intercept

import "net"

// lingerNot does nothing: on this system accepted connections inherit nothing.
func lingerNot(*net.TCPListener) error { return nil }
