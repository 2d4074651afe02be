// Package zmtp speaks ZMTP 3.0 and 3.1 with the NULL mechanism over a connection, byte for byte as libzmq does
// (rfc.zeromq.org, specifications 23 and 37). All integers are big-endian.
//
// Each side writes a greeting of 64 bytes:
//
//	0xFF, u64 1 + length of the identity, 0x7F    the signature; older versions read a frame's length in it
//	3, minor                                      version
//	"NULL" and 16 zero bytes                      mechanism
//	0 and 31 zero bytes                           not a server of the mechanism; filler
//
// and then frames: flags (1 MORE, 2 LONG, 4 COMMAND), the body's length in one byte or, with LONG, eight, and the body.
// The first frame is the command READY, which carries the socket's type and identity. All frames of a message
// but the last have MORE.
package zmtp

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
)

// Types of sockets: ps-lite connects with a Dealer and accepts with a Router.
const (
	Dealer = "DEALER"
	Router = "ROUTER"
)

// A Socket describes one end of a connection.
type Socket struct {
	Type     string // Dealer or Router
	Identity string // at most 255 bytes; "": none
	Minor    byte   // of the version: 0 as libzmq writes it up to 4.3.2, 1 as later ones do
}

// A Counter counts bytes on all connections that it is given to.
type Counter struct{ Sent, Received atomic.Int64 }

// A Conn is a connection on which both ends have said READY. One goroutine may read and others write.
type Conn struct {
	Peer Socket // the other end

	conn    net.Conn
	r       *bufio.Reader
	counter *Counter

	writing sync.Mutex
	small   []byte      // frames that are being written, without large bodies
	pieces  net.Buffers // of one write
}

// Close closes the connection. Any goroutine may call it, at any time and more than once.
func (c *Conn) Close() error { return c.conn.Close() }

// A meter counts the bytes that are read.
type meter struct {
	net.Conn
	n *atomic.Int64
}

func (m meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.n.Add(int64(n))
	return n, err
}
