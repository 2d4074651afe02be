package tunnel

import (
	"encoding/binary"
	"net"
	"sync/atomic"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// A clearFilter is the connection below DTLS. Once the handshake is over it drops the records that are not authenticated, which anybody can send
// under the peer's address: some would end the connection, and messages of the handshake hold up pion/dtls. RFC 6347, 4.1.2.7: invalid records are
// discarded.
type clearFilter struct {
	*udp.Conn
	secured  atomic.Bool // the handshake is over here
	finished atomic.Bool // and there, so that the other end does not repeat its messages
}

// Types of records, which DTLS 1.2 has from TLS 1.2: RFC 5246, 6.2.1.
const (
	dtlsChangeCipherSpec = 20
	dtlsHandshake        = 22

	dtlsHeaderLen = 13
)

// Read returns the next datagram, without the records that are dropped.
func (f *clearFilter) Read(p []byte) (int, error) {
	for {
		n, err := f.Conn.Read(p)
		if err != nil || !f.secured.Load() {
			return n, err
		}
		if n = dropClear(p[:n], !f.finished.Load()); n > 0 {
			return n, nil
		}
	}
}

// dropClear drops the records in clear of a datagram, all but messages of the handshake if those may be repeated, and records that are cut off.
// It returns the length of the others, which come to the front.
func dropClear(datagram []byte, repeated bool) (n int) {
	for rest := datagram; len(rest) >= dtlsHeaderLen; {
		length := dtlsHeaderLen + int(binary.BigEndian.Uint16(rest[dtlsHeaderLen-2:]))
		if length > len(rest) {
			break
		}
		kind, epoch := rest[0], binary.BigEndian.Uint16(rest[3:])
		if epoch == 0 && kind == dtlsHandshake && repeated || epoch > 0 && kind != dtlsChangeCipherSpec { // that one is never encrypted
			n += copy(datagram[n:], rest[:length])
		}
		rest = rest[length:]
	}
	return n
}

// A securedConn is a connection of DTLS. The first packet that it reads shows that the handshake is over at the other end.
type securedConn struct {
	net.Conn
	filter *clearFilter
}

func (c *securedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && !c.filter.finished.Load() {
		c.filter.finished.Store(true)
	}
	return n, err
}
