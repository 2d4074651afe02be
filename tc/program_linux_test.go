package tc

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/gradproxy/gradproxy/integration/require"
)

// How the programs classify a packet, without a device: the kernel runs them on packets made here (BPF_PROG_TEST_RUN).
func TestProgramReadsPackets(t *testing.T) {
	require.Root(t)
	const (
		ipv4, ipv6, arp        = 0x0800, 0x86DD, 0x0806
		tcp, udp, icmp6, other = 6, 17, 58, 253
	)
	for _, c := range []struct {
		name     string
		packet   []byte
		segments uint32
		want     shapeCarried
	}{
		{"IPv4, UDP", packet(ipv4, udp, 20, 0, 1000), 0, shapeCarried{Packets: 1, Bytes: 1000}},
		{"IPv6, TCP", packet(ipv6, tcp, 40, 20, 1500), 0, shapeCarried{Packets: 1, Bytes: 1500}},
		{"IPv4, TCP, joined", packet(ipv4, tcp, 20, 32, 2948), 2, shapeCarried{Packets: 2, Bytes: 2948 + 52}},
		{"IPv4 with options, TCP, joined", packet(ipv4, tcp, 24, 20, 3000), 3, shapeCarried{Packets: 3, Bytes: 3000 + 2*44}},
		{"IPv4, UDP, joined", packet(ipv4, udp, 20, 0, 3000), 3, shapeCarried{Packets: 3, Bytes: 3000 + 2*28}},
		{"IPv6, TCP, joined", packet(ipv6, tcp, 40, 32, 3000), 3, shapeCarried{Packets: 3, Bytes: 3000 + 2*72}},
		{"IPv4, another protocol", packet(ipv4, other, 20, 0, 500), 0, shapeCarried{Packets: 1, Bytes: 500}},
		{"ARP", packet(arp, 0, 0, 0, 28), 0, shapeCarried{}},
		{"IPv6 echo request", withType(packet(ipv6, icmp6, 40, 0, 104), 128), 0, shapeCarried{Packets: 1, Bytes: 104}},
		{"IPv6 router solicitation", withType(packet(ipv6, icmp6, 40, 0, 104), 133), 0, shapeCarried{}},
		{"IPv6 redirect", withType(packet(ipv6, icmp6, 40, 0, 104), 137), 0, shapeCarried{}},
		{"IPv6, after redirect", withType(packet(ipv6, icmp6, 40, 0, 104), 138), 0, shapeCarried{Packets: 1, Bytes: 104}},
		{"multicast", append([]byte{1}, packet(ipv4, udp, 20, 0, 1000)[1:]...), 0, shapeCarried{}},
	} {
		for _, name := range []string{shapeProgLoss, shapeProgPace} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				spec, err := loadShape()
				if err != nil {
					t.Fatal(err)
				}
				loaded, err := ebpf.NewCollection(spec)
				if err != nil {
					t.Fatal(err)
				}
				defer loaded.Close()
				context := make([]byte, 192) // struct __sk_buff of linux/bpf.h
				binary.NativeEndian.PutUint32(context[164:], c.segments)
				verdict, err := loaded.Programs[name].Run(&ebpf.RunOptions{Data: c.packet, Context: context})
				if err != nil {
					t.Fatal(err)
				}
				if int32(verdict) != -1 {
					t.Errorf("verdict %d: want the next filter to decide", int32(verdict))
				}
				var got shapeCarried
				if err := loaded.Maps[shapeMapCounters].Lookup(uint32(0), &got); err != nil {
					t.Fatal(err)
				}
				if got != c.want {
					t.Errorf("counted %+v, want %+v", got, c.want)
				}
			})
		}
	}
}

// packet returns an Ethernet packet with an IP packet of size bytes: its header is of header bytes, that of TCP in it
// of tcp.
func packet(kind uint16, protocol byte, header, tcp, size int) []byte {
	p := make([]byte, EthernetHeader+size)
	binary.BigEndian.PutUint16(p[12:], kind)
	ip := p[EthernetHeader:]
	switch kind {
	case 0x0800:
		ip[0], ip[9] = 0x40|byte(header/4), protocol
	case 0x86DD:
		ip[0], ip[6] = 0x60, protocol
	}
	if tcp > 0 {
		ip[header+12] = byte(tcp/4) << 4
	}
	return p
}

// withType sets the type of the ICMP message in an IPv6 packet.
func withType(p []byte, kind byte) []byte {
	p[EthernetHeader+40] = kind
	return p
}
