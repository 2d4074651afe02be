// Package udp makes connections of UDP datagrams, without a promise that any arrives. A connection begins with two exchanges in clear, so
// that a listener keeps nothing for an address that has not shown that it receives there (after RFC 9000, section 8.1):
//
//	ask      client to server   padded: no answer of the server's is longer than the question
//	cookie   server to client   HMAC of the client's address and nonce, and the time
//	begin    client to server   the cookie; the server now makes a connection
//	welcome  server to client
//
// Each of these messages begins with four bytes: 1 to 4, 'g', 'p' and a version, 1. Their first byte is none with which DTLS begins
// (RFC 7983). A client asks again until it has an answer. Then the datagrams of both sides go to the layer above, which must
// encrypt and authenticate them.
//
// On Linux up to 64 datagrams cross the kernel in one call (UDP_SEGMENT, UDP_GRO), and no router may cut them (IP_MTU_DISCOVER), so that the
// layer above can find the size that a path carries.
package udp
