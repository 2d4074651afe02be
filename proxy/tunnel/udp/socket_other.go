//go:build !linux

package udp

import (
	"net"
	"net/netip"
)

func tune(c *net.UDPConn, _ func(fd int) error) (offload bool) {
	c.SetReadBuffer(SocketBuffer)
	c.SetWriteBuffer(SocketBuffer)
	return false
}

func segments(oob []byte, each int) []byte { return oob }

func tellDestinations(c *net.UDPConn) {}

func sourceOf(oob []byte) []byte { return nil }

func arrival(oob []byte) (each int, mark Mark) { return 0, 0 }

func marking(oob []byte, mark Mark, to netip.Addr) []byte { return oob }

func unmarkable(err error) bool { return false }

func refused(err error) bool { return false }

func passing(err error) bool { return false }

func uncut(err error) (refused, forever bool) { return false, false }
