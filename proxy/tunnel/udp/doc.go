// Package udp makes connections of UDP datagrams, without a promise that any arrives. A connection begins with two
// exchanges in clear, so that a listener keeps nothing for an address that has not shown that it receives there (after
// RFC 9000, section 8.1):
//
//	ask      client to server   padded: no answer of the server's is longer than the question
//	cookie   server to client   HMAC of the client's address and nonce, and the time
//	begin    client to server   the cookie; the server now makes a connection
//	welcome  server to client
//
// A connection outlives the addresses of its dialing side, which may change at any time: a NAT forgets its mapping, or
// the host has another network. A listener that gets datagrams from an address that it does not know says so; a dialing
// side that hears this, or nothing at all, asks for a cookie from a new socket, and proves by a key of the layer above
// that the connection is its own:
//
//	stray    server to client   the client's address is not known here
//	move     client to server   the cookie, a count that grows, and an HMAC of the message by the key
//	moved    server to client   the count, and an HMAC; datagrams now go to the address from which the move came
//	gone     server to client   the connection is not known here
//
// So the server sends nothing to a new address before it has shown that datagrams arrive there, and that the peer
// itself has it (after RFC 9000, section 9). The cookie is part of the proof, so that nobody else can bring the message
// from another address. All but the proofs can be forged by a host on the path: stray and gone make the client ask, and
// a further connection at most.
//
// Connection ids (RFC 9146) are not used: pion/dtls/v2 negotiates none, and they would lengthen every datagram, while
// addresses change seldom.
//
// Each of these messages begins with four bytes: 1 to 8, 'g', 'p' and a version, 1. Their first byte is none with which
// DTLS begins (RFC 7983). A client asks again until it has an answer. Then the datagrams of both sides go to the layer
// above, which must encrypt and authenticate them.
//
// On Linux up to 64 datagrams cross the kernel in one call (UDP_SEGMENT, UDP_GRO), and no router may cut them
// (IP_MTU_DISCOVER), so that the layer above can find the size that a path carries. Where the kernel cannot cut a
// write, one call does a write for each (sendmmsg). One call also does several reads (recvmmsg), since the kernel does
// not always join what came. There a datagram also has a Mark, by which routers tell of congestion.
//
// # Locks
//
// A goroutine that holds a lock may take only locks that stand below it here:
//
//	moving.mu    a connection's key and its moves; a dialed one's read deadline
//	Listener.mu  the table of connections, and how many strays were told
//	way.mu       the socket and the address by which a connection's datagrams leave: held while they do
//	deadline.mu  the read deadline of an accepted connection: no lock is taken under it
//
// Each lock is a type that says its rank (rank.go), by which all tests of the package watch the order. Callers may hold
// a lock of package tunnel that stands above its "others".
package udp
