//go:build !linux

package udp

import "net"

func tune(c *net.UDPConn) (offload bool) {
	c.SetReadBuffer(socketBuffer)
	c.SetWriteBuffer(socketBuffer)
	return false
}

func segments(oob []byte, each int) []byte { return oob }

func tellDestinations(c *net.UDPConn) {}

func sourceOf(oob []byte) []byte { return nil }

func segmentLen(oob []byte) int { return 0 }

func refused(err error) bool { return false }

func passing(err error) bool { return false }

func uncut(err error) (refused, forever bool) { return false, false }
