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
)

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
