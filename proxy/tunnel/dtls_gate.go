package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// Bounds of one handshake over datagrams, in bytes and in pieces of messages: pion keeps each piece, and counts neither empty pieces nor
// its own notes on them. A flight with long chains of certificates has 5 KiB in 6 pieces, and leaves at most 16 times within
// handshakeWithin.
const (
	handshakeBytes  = 96 << 10
	handshakePieces = 256
	handshakeMemory = 384 << 10 // of one handshake, all in all
	// maxHalfOpenDatagrams is how many handshakes over datagrams may be under way: they take memory, and handshakes over TCP take
	// descriptors.
	maxHalfOpenDatagrams = 256
)

// Fields of a DTLS record's header and of a handshake message's: RFC 6347, sections 4.1 and 4.2.2.
const (
	dtlsHeader     = 13
	dtlsCipherSpec = 20 // never encrypted
	dtlsAlert      = 21
	dtlsHandshake  = 22
	dtlsData       = 23
	messageHeader  = 12
	epochAt        = 3
	recordLengthAt = 11
)

var errLongHandshake = errors.New("more bytes than a handshake takes")

// A recordGate is the connection of datagrams below DTLS. pion/dtls goes on to take records in clear once a connection is up, so that
// a host that writes its addresses into a datagram could end it by an alert, or fill the buffer of handshake messages. The gate lets them pass
// no longer than the handshake takes, and bounds that. RFC 6347, 4.1.2.7: invalid records are discarded.
type recordGate struct {
	*udp.Conn
	secured atomic.Bool  // the handshake is over here: nothing in clear passes. The other end may repeat its last flight, of which the end is under the key
	settled atomic.Bool  // and there
	mark    atomic.Int32 // of the datagram that came last
	bytes   int          // of the handshake
	pieces  int
}

// Read returns the next datagram, without the records that may not pass.
func (g *recordGate) Read(p []byte) (int, error) {
	for {
		n, mark, err := g.Conn.ReadMarked(p)
		if err != nil {
			return n, err
		}
		g.mark.Store(int32(mark))
		if n, err = g.admit(p[:n]); n > 0 || err != nil {
			return n, err
		}
	}
}

// admit removes the records from a datagram that may not pass, and returns the number of bytes that are left.
func (g *recordGate) admit(b []byte) (n int, err error) {
	settled := g.settled.Load()
	if !settled {
		if g.bytes += len(b); g.bytes > handshakeBytes {
			return 0, fmt.Errorf("%w: over %d", errLongHandshake, handshakeBytes)
		}
	}
	for len(b)-n >= dtlsHeader {
		r := b[n:]
		length := dtlsHeader + int(binary.BigEndian.Uint16(r[recordLengthAt:]))
		if length > len(r) {
			break
		}
		r = r[:length]
		keyed := r[epochAt] != 0 || r[epochAt+1] != 0
		if !g.passes(r[0], keyed) {
			b = append(b[:n], b[n+length:]...)
			continue
		}
		if !settled && r[0] == dtlsHandshake {
			if g.pieces += pieces(r[dtlsHeader:], keyed); g.pieces > handshakePieces {
				return 0, fmt.Errorf("%w: over %d pieces", errLongHandshake, handshakePieces)
			}
		}
		n += length
	}
	return n, nil
}

// passes reports whether a record of a type may pass now. keyed: it is under a key.
func (g *recordGate) passes(kind byte, keyed bool) bool {
	switch {
	case g.settled.Load():
		return keyed && (kind == dtlsData || kind == dtlsAlert)
	case g.secured.Load():
		return keyed && kind != dtlsCipherSpec
	}
	return true
}

// pieces returns how many pieces of handshake messages a record has. Pieces under a key cannot be seen, and are few.
func pieces(b []byte, keyed bool) (n int) {
	if keyed {
		return 1
	}
	for len(b) >= messageHeader {
		n++
		length := messageHeader + int(b[1])<<16 + int(b[2])<<8 + int(b[3])
		b = b[min(length, len(b)):]
	}
	return n
}
