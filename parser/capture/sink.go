package capture

import (
	"net/netip"

	"github.com/gradproxy/gradproxy/parser"
)

// A Conn is a TCP connection of a capture.
type Conn struct {
	// Client sent the SYN. Where the capture lacks it, Client is the end with the higher port.
	Client, Server netip.AddrPort
	// Number counts the connections between these two addresses, ports left out, from 0 in the order of their first
	// packets.
	Number int
}

// A Sink receives the bytes of one connection. Its methods are not called concurrently.
type Sink interface {
	// Data is the next bytes of one side, in order. Within a capture, calls for all connections come in the order of
	// the packets. b is valid until Data returns.
	Data(from parser.Side, b []byte)
	// Gap says that the capture lacks bytes of that side; Data goes on after them.
	Gap(from parser.Side)
	// Close ends the connection. complete: every byte of both sides came, from SYN to FIN or reset.
	Close(complete bool)
}
