package udp

import (
	"crypto/rand"
	"net/netip"
)

// A RoutingMessage is one of a return routability check: RFC 9853, section 4. It travels in a record under the key.
type RoutingMessage [routingLen]byte

const (
	pathChallenge = 0
	pathResponse  = 1

	cookieBytes = 8
	routingLen  = 1 + cookieBytes
)

// newChallenge returns a path_challenge with a new cookie.
func newChallenge() (m RoutingMessage) {
	m[0] = pathChallenge
	rand.Read(m[1:])
	return m
}

// answer returns the path_response to a path_challenge.
func (m RoutingMessage) answer() RoutingMessage {
	m[0] = pathResponse
	return m
}

// A Prover encrypts and authenticates the messages of return routability checks, by a key that only the two ends of
// the connection have. Its methods may be called concurrently.
type Prover interface {
	// Seal returns a datagram with a message. Where the dialing side has made it, it carries the connection id.
	Seal(m RoutingMessage) ([]byte, error)
	// Open reads a datagram that Seal of the other end has made. ok: it is authentic, and comes for the first time.
	Open(d []byte) (m RoutingMessage, ok bool)
}

// A check is a return routability check of a listener's connection: datagrams came from another address than before,
// and the peer must show that it receives there before the connection moves there.
type check struct {
	far       netip.AddrPort
	challenge RoutingMessage
}
