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
// the host has another network. The welcome names a connection id, by which the listener knows the connection's
// records under the key from whichever address they come: RFC 9146. Package tunnel writes it into these records
// (sections 4 and 5), and reads it there. Records of the accepting side carry none, as the RFC allows, since a dialing
// side has a socket for each connection. The RFC has the ids agreed in an extension of the handshake's first messages,
// which pion/dtls/v2 cannot carry; here they are agreed before the handshake. If somebody changes an id on the way,
// the handshake fails, since the ids are part of the data that each record authenticates.
//
// When the newest authentic record comes from another address, the listener checks that the peer receives there, before
// it sends anything else there (RFC 9146, section 6), by a return routability check (RFC 9853):
//
//	path_challenge  server to client   at the new address: a cookie, in a record
//	path_response   client to server   the same cookie, from that address
//
// A dialing side that hears nothing opens a new socket, and sends a challenge of its own from there, until the listener
// is heard there. A listener that gets a record of a connection that it does not know, since its process is a new one,
// says so:
//
//	gone            server to client   in clear: the connection id
//
// A host on the path can forge that, which makes the client dial a further connection at most. It can also bring the
// client's records from its own address and relay the check. For that each record must arrive before the client's own
// copy from the challenge to the response, since the newest record from the connection's own address ends all checks;
// and the connection moves back, half a second later at the earliest, once a record of the client's own arrives first.
//
// Each message in clear begins with four bytes: 1 to 5, 'g', 'p' and a version, 2. Their first byte is none with which
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
//	moving.mu    a connection's prover, its checks and its moves; a dialed one's read deadline
//	Listener.mu  the tables of connections, and how many answers say that one is gone
//	way.mu       the socket and the address by which a connection's datagrams leave: held while they do
//	deadline.mu  the read deadline of an accepted connection: no lock is taken under it
//
// Each lock is a type that says its rank (rank.go), by which all tests of the package watch the order. Callers may hold
// a lock of package tunnel that stands above its "others".
package udp
