package tunnel

import (
	"context"
	"errors"
	"net"
	"time"
)

// A Transport makes carriers. It reaches another site, proves to each side which site the other one is, and then
// carries the records of the tunnel. All methods may be called concurrently.
//
// The tunnel does for every Transport: openings, credit, order within a stream, replay after the loss of a
// carrier, PING, rotation, the limit on half-open handshakes, and the retry of dials. A Transport must do the rest:
// bring every record that a Link takes, or end the Link; recover the losses of its network; control congestion; and
// keep the records secret and unaltered.
type Transport interface {
	// Dial opens a connection to address, "host:port". It need not have proved the other end's identity yet. An error
	// that wraps a *net.DNSError makes the tunnel dial the address that it reached last instead.
	Dial(ctx context.Context, address string) (net.Conn, error)

	// Listen returns a listener for Endpoint.Serve. Its Accept must not wait for a handshake, so that the tunnel can
	// limit and end the handshakes that are under way. The addresses of connections should have a method AddrPort, as
	// *net.TCPAddr and *net.UDPAddr have: half-open handshakes are counted by source. A connection that is no socket
	// should have a method AwaitFirst() error, which waits for the first byte and leaves it there: else its handshake
	// begins before it has said anything.
	Listen(ctx context.Context, address string) (net.Listener, error)

	// Datagrams reports whether a connection of Dial or of Listen sends datagrams. The tunnel bounds the half-open
	// handshakes over datagrams apart, and where a site has carriers of both kinds it chooses between them.
	Datagrams(conn net.Conn) bool

	// Kind returns the name of the kind of carrier that a connection of Dial or of Listen becomes, for logs and
	// statistics.
	Kind(conn net.Conn) string

	// Secure performs the handshake on a connection of Dial (dialed) or of Listen. It must call allow once with
	// the identity that the other end has proved, before it returns without an error, and must fail with the error of
	// allow; only where Config.Insecure is set may it call nothing. The tunnel has set a deadline on conn, and
	// closes conn when ctx ends or Secure fails: Secure must then return.
	Secure(ctx context.Context, conn net.Conn, dialed bool, allow func(id string) error) (Link, error)
}

// A dialer makes connections, as a Transport does.
type dialer interface {
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// A Link is a secured connection that carries records. One goroutine at a time reads, and one writes or flushes; the
// other methods may be called at any time. Of a net.Conn's methods the tunnel calls Read, Write, Close, RemoteAddr and
// SetDeadline. Close must end the Link at once and drop the bytes that have not left.
//
// A Link carries every record that it takes once, whole and unaltered, until it fails, and then tells the reader so.
// Read returns records one behind the other, as if they were one stream of bytes. Their order may be another one than
// that of Write in one respect only: a record for a stream (not 0) may overtake records for other streams and for its
// own, since offsets restore the order. So a lost datagram needs to hold up nothing but the record that it is part of.
// A record for stream 0 must not overtake anything, and HELLO, READY and LEAVE must not be overtaken either. io.EOF
// comes after all records.
type Link interface {
	net.Conn

	// Write, a net.Conn's, is given one or more whole records, each of a header of at most 32 bytes and a body of at
	// most 256 KiB. It must not retain its argument, may keep a copy until Flush, and waits for the network only if
	// over a MiB is pending.

	// Pending returns how many bytes Flush would send. It must not wait.
	Pending() int
	// Flush sends the pending bytes. It may wait for the network.
	Flush() error
	// CanTry reports whether TryFlush works. The answer must not change.
	CanTry() bool
	// TryFlush sends as many bytes as the network takes at once and must not wait for more. full: something is still
	// pending.
	TryFlush() (full bool, err error)
	// Idle tells the Link that the tunnel has nothing to send for now: a rate that the network shows from here on is
	// that of the application.
	Idle()
	// CloseWrite flushes, and has the peer read io.EOF afterwards.
	CloseWrite() error
	// State says how the Link is.
	State() LinkState
}

// A LinkState is how a Link is at a moment.
type LinkState struct {
	Received   uint64        // bytes that have come from the peer, of any kind: while the number grows, the peer lives
	Network    Traffic       // on the network, from and to this host; zero: not known
	Packets    uint64        // with data that have left, for the loss of packets
	Resent     uint64        // of these, again
	Loss       float64       // part of the packets, or of their bytes, that were lost so far; 0 where that is not known
	RTT        time.Duration // smoothed; 0: not known
	Backlog    uint64        // bytes that have left this process and that the other host has not confirmed
	Congestion string        // name of the congestion control, for logs and PeerStats.BBR; "": not known
	Worn       bool          // the key has served long enough: another carrier should take this one's place
	Rekeyed    bool          // this side has another certificate now than the one that it has shown
	Renewal    time.Time     // by Config.Now: when another carrier should come, before the first certificate ends; zero: never
	Revoked    bool          // the certificate that the other side has shown is revoked: the carrier must end
	Expiry     time.Time     // by Config.Now: when the first certificate ends, and the carrier with it; zero: never

	Lost     bool          // the other host seems not to know the connection any more: another carrier should take this one's place
	Waits    bool          // bytes have left that the other host has not confirmed; false where that is not known
	Silence  time.Duration // since anything last came from the other host, confirmations included; 0: not known
	Patience time.Duration // how long a confirmation may take, by the round trips so far; 0: not known
}

// Traffic is the bytes of IP packets, with all headers, acknowledgements and resent bytes.
type Traffic struct{ Sent, Received uint64 }

// errNoIdentity is the error of a Transport that breaks the contract of Secure.
var errNoIdentity = errors.New("the transport has proved no identity")

// handshakeWithin bounds each wait for the other end until a Link is there, and when it ends.
const handshakeWithin = 5 * time.Second

// rotateRecords is how many records a carrier may receive. Each may have taken a record of the transport's cipher. See
// RFC 8446, 5.5.
const rotateRecords = 1 << 24

// rotateForged is how many records a carrier over datagrams may refuse that are not authentic. Each is a guess: RFC
// 9147, section 4.5.3, allows 2^36.
const rotateForged = 1 << 35

// fraction returns n over all; 0 where there is nothing.
func fraction(n, all uint64) float64 {
	if all == 0 {
		return 0
	}
	return float64(n) / float64(all)
}

// Values of Config.Carrier.
const (
	CarrierTLS  = "tls"
	CarrierDTLS = "dtls"
	CarrierAuto = "auto"
)
