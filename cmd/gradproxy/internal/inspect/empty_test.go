package inspect

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/all"
	"github.com/gradproxy/gradproxy/parser/capture"
)

// scan returns a capture of n connections with a SYN each and no more.
func scan(t *testing.T, n int) []byte {
	t.Helper()
	var file bytes.Buffer
	w := pcapgo.NewWriter(&file)
	if err := w.WriteFileHeader(65535, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		source := binary.BigEndian.AppendUint16([]byte{10, 0}, uint16(i>>8))
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: source, DstIP: []byte{10, 1, 0, 1}}
		tcp := &layers.TCP{SrcPort: layers.TCPPort(1024 + i&255), DstPort: 80, SYN: true}
		packet := gopacket.NewSerializeBuffer()
		if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		if err := gopacket.SerializeLayers(packet, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, tcp); err != nil {
			t.Fatal(err)
		}
		b := packet.Bytes()
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}

// A counted protocol counts the connections that it is asked to read.
type counted struct {
	parser.Protocol
	made *int
}

func (c counted) New(conn parser.Conn) (fromClient, fromServer parser.Parser) {
	*c.made++
	return c.Protocol.New(conn)
}

// Connections without data are reported, but cost no parsers; the first byte makes them.
func TestParsersWaitForData(t *testing.T) {
	const connections = 1000
	r, err := Read(bytes.NewReader(scan(t, connections)), Config{})
	if err != nil || len(r.Connections) != connections {
		t.Fatalf("%d connections, %v", len(r.Connections), err)
	}
	if d := r.Connections[0].FromClient; d.PayloadSHA256 != hexSum(newHash()) || d.Bytes != 0 {
		t.Errorf("of nothing: %+v", d)
	}

	made := 0
	x := &inspector{bursts: map[[2]string]*bursts{}, tensors: &tensors{last: map[blockName]*block{}}}
	for own := range x.near {
		x.near[own] = []parser.Protocol{counted{all.Protocols()[0], &made}}
	}
	address := netip.MustParseAddrPort("192.0.2.1:9")
	w := x.open(capture.Conn{Client: address, Server: address})
	w.Gap(parser.Server)
	if made != 0 {
		t.Errorf("%d parsers before data", made)
	}
	w.Data(parser.Client, []byte{1})
	w.Data(parser.Client, []byte{0})
	if made != len(x.near) {
		t.Errorf("parsers were made %d times, want once at each end", made)
	}
	for _, r := range w.(*wire).readers {
		if !r.ended[parser.Server] {
			t.Error("a gap before data was forgotten")
		}
	}
}
