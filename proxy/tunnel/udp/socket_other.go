//go:build !linux

package udp

import "net"

func tune(c *net.UDPConn) (offload bool) {
	c.SetReadBuffer(socketBuffer)
	c.SetWriteBuffer(socketBuffer)
	return false
}

func segments(oob []byte, each int) []byte { return oob }

func segmentLen(oob []byte) int { return 0 }

func passing(err error) bool { return false }
