package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// Link types (https://www.tcpdump.org/linktypes.html).
const (
	linkNull  = 0
	linkEther = 1
	linkRawBS = 12 // as some BSDs number linkRaw
	linkRaw   = 101
	linkLoop  = 108
	linkSLL   = 113
	linkIPv4  = 228
	linkIPv6  = 229
	linkSLL2  = 276
)

// A segment is a TCP segment and the ends that it went between.
type segment struct {
	from, to netip.AddrPort
	tcp      *layers.TCP
}

// A decoder finds the TCP segment in a packet. The zero decoder is ready for use.
type decoder struct {
	ip      map[gopacket.LayerType]*gopacket.DecodingLayerParser // by the first layer
	tcpOnly *gopacket.DecodingLayerParser
	decoded []gopacket.LayerType

	ether layers.Ethernet
	vlan  layers.Dot1Q
	sll   layers.LinuxSLL
	loop  layers.Loopback
	ip4   layers.IPv4
	ip6   layers.IPv6
	tcp   layers.TCP
	none  gopacket.Payload
}

// decode returns the segment in data, nil if there is none, or an error if the link is not supported.
func (d *decoder) decode(link uint32, data []byte) (*segment, error) {
	first := layers.LayerTypeEthernet
	switch link {
	case linkEther:
	case linkNull, linkLoop:
		first = layers.LayerTypeLoopback
	case linkSLL:
		first = layers.LayerTypeLinuxSLL
	case linkSLL2: // the protocol, 18 bytes more, the packet
		if len(data) < 20 {
			return nil, nil
		}
		data, first = data[20:], layers.EthernetType(binary.BigEndian.Uint16(data)).LayerType()
	case linkRaw, linkRawBS, linkIPv4, linkIPv6:
		if len(data) == 0 {
			return nil, nil
		}
		if first = layers.LayerTypeIPv4; data[0]>>4 == 6 {
			first = layers.LayerTypeIPv6
		}
	default:
		return nil, fmt.Errorf("link type %d is not supported: capture Ethernet, loopback, Linux cooked or raw IP", link)
	}
	return d.network(first, data), nil
}

// network decodes down to IP, and TCP if IP carries it. A packet that gopacket cannot decode has no segment.
func (d *decoder) network(first gopacket.LayerType, data []byte) *segment {
	if d.tcpOnly == nil {
		d.ip = map[gopacket.LayerType]*gopacket.DecodingLayerParser{}
		d.tcpOnly = gopacket.NewDecodingLayerParser(layers.LayerTypeTCP, &d.tcp, &d.none)
	}
	p := d.ip[first]
	if p == nil {
		p = gopacket.NewDecodingLayerParser(first, &d.ether, &d.vlan, &d.sll, &d.loop, &d.ip4, &d.ip6)
		d.ip[first] = p
	}
	err := p.DecodeLayers(data, &d.decoded)
	if _, stopped := err.(gopacket.UnsupportedLayerType); err != nil && !stopped || len(d.decoded) == 0 {
		return nil
	}
	var src, dst []byte
	var body []byte
	var next gopacket.LayerType
	switch d.decoded[len(d.decoded)-1] {
	case layers.LayerTypeIPv4:
		src, dst, body, next = d.ip4.SrcIP, d.ip4.DstIP, d.ip4.Payload, d.ip4.NextLayerType()
		body = whole(data, d.ip4.Contents, body)
	case layers.LayerTypeIPv6:
		src, dst, body, next = d.ip6.SrcIP, d.ip6.DstIP, d.ip6.Payload, d.ip6.NextLayerType()
		if hop := d.ip6.HopByHop; hop != nil { // gopacket cuts a jumbogram's off at neither end
			if d.ip6.Length == 0 {
				body = body[min(len(body), hop.ActualLength):]
			} else {
				body = body[:max(0, min(len(body), int(d.ip6.Length)-hop.ActualLength))]
			}
		}
	}
	if next != layers.LayerTypeTCP {
		return nil
	}
	err = d.tcpOnly.DecodeLayers(body, &d.decoded)
	if err != nil || len(d.decoded) == 0 {
		return nil
	}
	from, ok1 := netip.AddrFromSlice(src)
	to, ok2 := netip.AddrFromSlice(dst)
	if !ok1 || !ok2 {
		return nil
	}
	return &segment{
		from: netip.AddrPortFrom(from.Unmap(), uint16(d.tcp.SrcPort)),
		to:   netip.AddrPortFrom(to.Unmap(), uint16(d.tcp.DstPort)),
		tcp:  &d.tcp,
	}
}

// whole returns the bytes after an IPv4 header whose total length is 0: the kernel leaves it so in packets above 64 KiB
// that the network card will cut up, and gopacket then counts modulo 2^16.
func whole(data, header, body []byte) []byte {
	if len(header) < 4 || header[2] != 0 || header[3] != 0 {
		return body
	}
	begin := cap(data) - cap(header) // header is a part of data
	if begin < 0 || begin+len(header) > len(data) {
		return body
	}
	return data[begin+len(header):]
}
