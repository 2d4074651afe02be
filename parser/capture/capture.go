// Package capture reads the TCP connections out of packet captures: classic pcap and pcapng, gzipped or not, as tcpdump
// and Wireshark write them. It needs neither libpcap nor cgo.
//
// It alone imports gopacket, whose decoders have panicked on hostile packets before: it uses them for links, IP and TCP
// only, checks lengths before gopacket allocates by them, and makes an error of a panic there.
package capture

import (
	"errors"
	"fmt"
	"io"
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
	// Data is the next bytes of one side, in order. Within a capture, calls for all connections come in the order of the
	// packets. b is valid until Data returns.
	Data(from parser.Side, b []byte)
	// Gap says that the capture lacks bytes of that side; Data goes on after them.
	Gap(from parser.Side)
	// Close ends the connection. complete: every byte of both sides came, from SYN to FIN or reset.
	Close(complete bool)
}

// Read reads the capture r to its end and calls open for each connection at its first packet. A nil Sink ignores the
// connection. Every Sink is closed before Read returns, also with an error: the capture is no capture, ends in the
// middle, or is of a link that is not supported. Memory is bounded by the number of connections, and 32 MiB.
func Read(r io.Reader, open func(Conn) Sink) error {
	packets, err := newSource(r)
	if err != nil {
		return err
	}
	t := newTable(open)
	defer t.close()
	for n := 1; ; n++ {
		p, err := packets.next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("capture: ends in the middle of packet %d: it was cut short", n)
		case err != nil:
			return fmt.Errorf("capture: packet %d: %w", n, err)
		}
		if p == nil {
			continue
		}
		if err := t.add(p); err != nil {
			return fmt.Errorf("capture: packet %d: %w", n, err)
		}
	}
}
