//go:build linux

package testbed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Packets says how the IP bytes of some packets are used.
type Packets struct {
	Packets int // packets of the link: a segment that the kernel hands on whole counts as those that it is cut into
	Bytes   int // of IP
	Empty   int // packets without bytes of TCP or UDP: of TCP mostly acknowledgements alone
	Headers int // bytes of the headers of IP, TCP and UDP, those of empty packets included
	Records int // of TLS that began; 0 with UDP
	Payload int // bytes behind the headers
	Small   int // packets of UDP of at most smallDatagram bytes
	Lone    int // packets with bytes of a user that are not full
	Near    int // of these, the ones that follow another one of their flow within nearTime
}

// nearTime is so short that a proxy which gathers small messages for an eighth of a round trip of 10 ms or more sends
// no two packets within it that are not full.
const nearTime = 600 * time.Microsecond

// fullPacket is the least length in bytes of a packet that counts as full: carriers over datagrams begin with 1,200.
const fullPacket = 1100

// smallDatagram bounds a datagram that holds an acknowledgement of a DTLS carrier and nothing else: DTLS adds 29 bytes,
// and a record of the tunnel does not fit.
const smallDatagram = 29 + 6 + 29

// Add adds the packets of o.
func (p *Packets) Add(o Packets) {
	p.Packets += o.Packets
	p.Bytes += o.Bytes
	p.Empty += o.Empty
	p.Headers += o.Headers
	p.Records += o.Records
	p.Payload += o.Payload
	p.Small += o.Small
	p.Lone += o.Lone
	p.Near += o.Near
}

// Minus returns the packets since before.
func (p Packets) Minus(before Packets) Packets {
	return Packets{p.Packets - before.Packets, p.Bytes - before.Bytes, p.Empty - before.Empty, p.Headers - before.Headers,
		p.Records - before.Records, p.Payload - before.Payload, p.Small - before.Small, p.Lone - before.Lone, p.Near - before.Near}
}

// A PacketCount counts the packets on a site's device of the WAN.
type PacketCount struct {
	socket *packetSocket

	mu        sync.Mutex
	out, in   Packets
	positions map[string]*recordPosition // by the flow
	lone      map[string]time.Duration   // by the flow, when its last packet came that was not full
}

// A recordPosition is where in a flow of TLS the next record begins.
type recordPosition struct {
	next  uint32 // sequence number of the next byte
	left  int    // bytes of the record under way
	head  []byte // of the header that is cut
	known bool
}

// CountPackets counts the packets that the site sends to the WAN and gets from it, until Stop.
func (s *Site) CountPackets() (*PacketCount, error) {
	c := &PacketCount{positions: map[string]*recordPosition{}, lone: map[string]time.Duration{}}
	ns, _, _ := s.edge()
	err := ns.Do(func() (err error) {
		c.socket, err = openPackets(s.Interface, unix.PACKET_VNET_HDR)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("testbed: counting packets at site %s: %w", s.Site, err)
	}
	go c.socket.read(c.take)
	return c, nil
}

// Counts returns the packets so far, by direction.
func (c *PacketCount) Counts() (out, in Packets) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out, c.in
}

// Stop ends the count. One that has missed packets is an error.
func (c *PacketCount) Stop() error {
	if err := c.socket.stop(); err != nil {
		return fmt.Errorf("testbed: counting packets: %w", err)
	}
	return nil
}

// vnetHeader is the length of the virtio_net_hdr before each packet, and gsoSize where its field of that name is
// (linux/virtio_net.h).
const (
	vnetHeader = 10
	gsoSize    = 4
)

// take takes a packet behind its virtio_net_hdr.
func (c *PacketCount) take(b []byte, link *unix.SockaddrLinklayer, at time.Duration) {
	if len(b) > vnetHeader {
		c.count(b[vnetHeader:], int(binary.NativeEndian.Uint16(b[gsoSize:])), link.Pkttype == unix.PACKET_OUTGOING, at)
	}
}

// count adds a packet, which the kernel cuts into segments with segment bytes of payload; 0: it is one.
func (c *PacketCount) count(packet []byte, segment int, out bool, at time.Duration) {
	header, protocol := ipHeader(packet)
	if header == 0 || len(packet) < header+8 {
		return
	}
	inner, tcp := packet[header:], protocol == unix.IPPROTO_TCP
	switch {
	case protocol == unix.IPPROTO_UDP:
		header += 8
	case tcp && len(inner) >= 20:
		header += int(inner[12]>>4) * 4
	default:
		return
	}
	if header > len(packet) {
		return
	}
	p := Packets{Packets: 1, Payload: len(packet) - header}
	if segment > 0 {
		p.Packets = max((p.Payload+segment-1)/segment, 1)
	}
	p.Headers = p.Packets * header
	p.Bytes = p.Headers + p.Payload
	switch {
	case p.Payload == 0:
		p.Empty = 1
	case !tcp && segment == 0 && p.Payload <= smallDatagram:
		p.Small = 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ip := packet[:len(packet)-len(inner)]
	if tcp {
		p.Records = c.records(ip, inner, packet[header:])
	}
	if p.Empty+p.Small == 0 && segment == 0 && p.Bytes < fullPacket {
		p.Lone = 1
		key := flow(ip, inner)
		if before, ok := c.lone[key]; ok && at-before < nearTime {
			p.Near = 1
		}
		c.lone[key] = at
	}
	if out {
		c.out.Add(p)
	} else {
		c.in.Add(p)
	}
}

// ipHeader returns the length of a packet's IP header and the protocol behind it; 0: it is something else.
func ipHeader(packet []byte) (n int, protocol byte) {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return int(packet[0]&15) * 4, packet[9]
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return 40, packet[6]
	}
	return 0, 0
}

// flow names the flow of a packet with these headers of IP and of TCP or UDP.
func flow(ip, inner []byte) string {
	addresses := ip[12:min(20, len(ip))]
	if ip[0]>>4 == 6 {
		addresses = ip[8:40]
	}
	return string(addresses) + string(inner[:4])
}

// records returns how many records of TLS begin in the new bytes of a segment.
func (c *PacketCount) records(ip, tcp, payload []byte) (n int) {
	key := flow(ip, tcp)
	p := c.positions[key]
	if p == nil {
		p = &recordPosition{}
		c.positions[key] = p
	}
	seq := binary.BigEndian.Uint32(tcp[4:])
	if tcp[13]&2 != 0 { // SYN
		*p = recordPosition{next: seq + 1, known: true}
	}
	if len(payload) == 0 {
		return 0
	}
	if !p.known { // the count began later than the connection: a segment that begins as a record does is taken for one
		if !bytes.HasPrefix(payload, []byte{23, 3, 3}) {
			return 0
		}
		*p = recordPosition{next: seq, known: true}
	}
	old := int(int32(p.next - seq))
	if old < 0 { // packets are missing: no record is found any more
		p.known = false
		return 0
	}
	if old >= len(payload) {
		return 0
	}
	payload = payload[old:]
	p.next += uint32(len(payload))
	const headLen = 5 // RFC 8446, 5.1
	for len(payload) > 0 {
		if p.left == 0 {
			k := min(headLen-len(p.head), len(payload))
			if len(p.head) == 0 {
				n++
			}
			p.head = append(p.head, payload[:k]...)
			if payload = payload[k:]; len(p.head) == headLen {
				p.left = int(binary.BigEndian.Uint16(p.head[3:]))
				p.head = p.head[:0]
			}
			continue
		}
		k := min(p.left, len(payload))
		p.left -= k
		payload = payload[k:]
	}
	return n
}
