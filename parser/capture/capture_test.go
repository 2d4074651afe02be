package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/gradproxy/gradproxy/parser"
)

// A note keeps the bytes of one connection.
type note struct {
	conn     Conn
	data     [2]string
	complete bool
	closed   bool
}

func (n *note) Data(from parser.Side, b []byte) { n.data[from] += string(b) }
func (n *note) Gap(from parser.Side)            { n.data[from] += "…" }
func (n *note) Close(complete bool)             { n.complete, n.closed = complete, true }

func notes(r io.Reader) ([]*note, error) {
	var all []*note
	err := Read(r, func(c Conn) Sink {
		n := &note{conn: c}
		all = append(all, n)
		return n
	})
	return all, err
}

const (
	syn = 1 << iota
	ack
	fin
	rst
)

// A step is a segment from a to b, or back; seq counts from the SYN, which is 0.
type step struct {
	back  bool
	flags int
	seq   uint32
	data  string
}

// A shape is how the packets of a test are wrapped.
type shape struct {
	link    layers.LinkType
	v6      bool
	isn     uint32
	ng, zip bool
}

var (
	addrA = netip.MustParseAddrPort("10.0.0.1:40000")
	addrB = netip.MustParseAddrPort("10.0.0.2:5000")
)

// packet makes the packet of one step.
func (sh shape) packet(t testing.TB, s step) []byte {
	t.Helper()
	a, b, isn := addrA, addrB, sh.isn
	if s.back {
		a, b, isn = b, a, sh.isn+1000
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(a.Port()), DstPort: layers.TCPPort(b.Port()), Seq: isn + s.seq, Window: 100,
		SYN: s.flags&syn != 0, ACK: s.flags&ack != 0, FIN: s.flags&fin != 0, RST: s.flags&rst != 0}
	var ip gopacket.SerializableLayer
	ether := layers.EthernetTypeIPv4
	if sh.v6 {
		ether = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolTCP, SrcIP: net.IP(a.Addr().AsSlice()).To16(), DstIP: net.IP(b.Addr().AsSlice()).To16()}
	} else {
		ip = &layers.IPv4{Version: 4, Protocol: layers.IPProtocolTCP, TTL: 9, SrcIP: a.Addr().AsSlice(), DstIP: b.Addr().AsSlice()}
	}
	all := []gopacket.SerializableLayer{ip, tcp, gopacket.Payload(s.data)}
	switch sh.link {
	case layers.LinkTypeEthernet:
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
		all = append([]gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: mac, DstMAC: mac, EthernetType: ether}}, all...)
	case layers.LinkTypeLinuxSLL:
		head := make(gopacket.Payload, 16)
		head[5], head[14], head[15] = 6, byte(ether>>8), byte(ether)
		all = append([]gopacket.SerializableLayer{head}, all...)
	case layers.LinkTypeNull:
		all = append([]gopacket.SerializableLayer{gopacket.Payload{2, 0, 0, 0}}, all...)
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, all...); err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), buf.Bytes()...)
}

// file makes a capture of the steps.
func (sh shape) file(t testing.TB, steps []step) []byte {
	t.Helper()
	var out bytes.Buffer
	write := func(gopacket.CaptureInfo, []byte) error { return nil }
	if sh.ng {
		w, err := pcapgo.NewNgWriter(&out, sh.link)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Flush()
		write = func(ci gopacket.CaptureInfo, b []byte) error {
			defer w.Flush()
			return w.WritePacket(ci, b)
		}
	} else {
		w := pcapgo.NewWriter(&out)
		if err := w.WriteFileHeader(65535, sh.link); err != nil {
			t.Fatal(err)
		}
		write = w.WritePacket
	}
	for i, s := range steps {
		b := sh.packet(t, s)
		if err := write(gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
	if !sh.zip {
		return out.Bytes()
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(out.Bytes())
	w.Close()
	return z.Bytes()
}

// talk is a connection from its first to its last segment.
var talk = []step{
	{false, syn, 0, ""}, {true, syn | ack, 0, ""}, {false, ack, 1, ""},
	{false, ack, 1, "hello"}, {true, ack, 1, "good day"}, {false, ack, 6, " world"},
	{false, fin | ack, 12, ""}, {true, fin | ack, 9, ""}, {false, ack, 13, ""},
}

func TestReadsEveryFileAndLink(t *testing.T) {
	for name, sh := range map[string]shape{
		"Ethernet":        {link: layers.LinkTypeEthernet},
		"Ethernet, IPv6":  {link: layers.LinkTypeEthernet, v6: true},
		"gzip":            {link: layers.LinkTypeEthernet, zip: true},
		"pcapng":          {link: layers.LinkTypeEthernet, ng: true},
		"pcapng, gzip":    {link: layers.LinkTypeEthernet, ng: true, zip: true},
		"Linux cooked":    {link: layers.LinkTypeLinuxSLL},
		"loopback":        {link: layers.LinkTypeNull},
		"raw IPv4":        {link: layers.LinkTypeRaw},
		"raw IPv6":        {link: layers.LinkTypeRaw, v6: true},
		"numbers wrap":    {link: layers.LinkTypeRaw, isn: 1<<32 - 4},
		"numbers wrap up": {link: layers.LinkTypeRaw, isn: 1<<32 - 1003},
	} {
		got, err := notes(bytes.NewReader(sh.file(t, talk)))
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %d connections, %v", name, len(got), err)
			continue
		}
		n := got[0]
		if n.data != [2]string{"hello world", "good day"} || !n.complete || n.conn != (Conn{addrA, addrB, 0}) {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// Linux cooked v2, which gopacket takes for another link: its number, 276, does not fit into gopacket's type.
func TestReadsLinuxCookedV2(t *testing.T) {
	raw := shape{link: layers.LinkTypeRaw}
	file := raw.file(t, nil)
	file[20], file[21] = 276&0xff, 276>>8
	var out bytes.Buffer
	w := pcapgo.NewWriter(&out)
	for _, s := range talk {
		b := append(append([]byte{8, 0}, make([]byte, 18)...), raw.packet(t, s)...)
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
	got, err := notes(bytes.NewReader(append(file, out.Bytes()...)))
	if err != nil || len(got) != 1 || got[0].data[0] != "hello world" {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestPutsTheBytesInOrder(t *testing.T) {
	begin := talk[:3]
	end := talk[6:]
	for _, c := range []struct {
		name     string
		steps    []step
		client   string
		complete bool
	}{
		{"swapped", []step{{false, ack, 6, " world"}, {false, ack, 1, "hello"}}, "hello world", true},
		{"repeated", []step{{false, ack, 1, "hello"}, {false, ack, 1, "hello"}, {false, ack, 6, " world"}}, "hello world", true},
		{"overlapping", []step{{false, ack, 1, "hello"}, {false, ack, 3, "llo world"}}, "hello world", true},
		{"overlapping, swapped", []step{{false, ack, 4, "lo world"}, {false, ack, 1, "hello wo"}}, "hello world", true},
		{"a keep-alive", []step{{false, ack, 0, "x"}, {false, ack, 1, "hello world"}}, "hello world", true},
		{"the first part is missing", []step{{false, ack, 6, " world"}}, "… world", false},
		{"the last part is missing", []step{{false, ack, 1, "hello"}}, "hello", false},
		{"the end comes early", []step{{false, fin | ack, 12, ""}, {false, ack, 1, "hello"}, {false, ack, 6, " world"}}, "hello world", true},
	} {
		steps := append(append(append([]step{}, begin...), c.steps...), step{true, ack, 1, "good day"})
		got, err := notes(bytes.NewReader(shape{link: layers.LinkTypeRaw}.file(t, append(steps, end...))))
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %d connections, %v", c.name, len(got), err)
		} else if n := got[0]; n.data[0] != c.client || n.complete != c.complete {
			t.Errorf("%s: %q, complete %v; want %q, %v", c.name, n.data[0], n.complete, c.client, c.complete)
		}
	}
}

func TestKnowsWhenAConnectionIsWhole(t *testing.T) {
	for _, c := range []struct {
		name     string
		steps    []step
		client   netip.AddrPort
		complete bool
	}{
		{"whole", talk, addrA, true},
		{"reset by the client", append(append([]step{}, talk[:6]...), step{false, rst, 12, ""}), addrA, true},
		{"reset by the server", append(append([]step{}, talk[:6]...), step{true, rst, 9, ""}), addrA, true},
		{"closed, then reset", append(append([]step{}, talk[:7]...), step{true, ack, 9, "late"}, step{false, rst, 13, ""}), addrA, true},
		{"reset after what is missing", append(append([]step{}, talk[:5]...), step{false, rst, 12, ""}), addrA, false},
		{"refused", []step{{false, syn, 0, ""}, {true, rst | ack, 0, ""}}, addrA, true},
		{"not answered", []step{{false, syn, 0, ""}}, addrA, false},
		{"still open", talk[:6], addrA, false},
		{"from its middle", talk[3:], addrA, false},
		{"from its answer", talk[1:], addrA, false},
		{"from its middle, the server first", talk[4:], addrA, false},
	} {
		got, err := notes(bytes.NewReader(shape{link: layers.LinkTypeRaw}.file(t, c.steps)))
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %d connections, %v", c.name, len(got), err)
		} else if n := got[0]; n.complete != c.complete || !n.closed || n.conn.Client != c.client {
			t.Errorf("%s: %+v", c.name, n)
		}
	}
}

// Two connections between the same ports are two, numbered in order.
func TestTellsConnectionsOfTheSameEndsApart(t *testing.T) {
	first := shape{link: layers.LinkTypeRaw}.file(t, talk)
	second := shape{link: layers.LinkTypeRaw, isn: 5000}.file(t, talk)
	got, err := notes(bytes.NewReader(append(first, second[24:]...)))
	if err != nil || len(got) != 2 {
		t.Fatalf("%d connections, %v", len(got), err)
	}
	for i, n := range got {
		if n.conn.Number != i || n.data[0] != "hello world" || !n.complete {
			t.Errorf("connection %d: %+v", i, n)
		}
	}
}

// A file that is cut short gives the packets that it holds, and one clear error.
func TestSaysWhatIsWrong(t *testing.T) {
	whole := shape{link: layers.LinkTypeRaw}.file(t, talk)
	strange := append([]byte{}, whole...)
	strange[20] = 147
	ng := shape{link: layers.LinkTypeRaw, ng: true}.file(t, talk)
	long := append([]byte{}, whole...)
	long[24+8+3] = 0x7f
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "neither pcap nor pcapng"},
		{"text", []byte(strings.Repeat("hello world ", 9)), "neither pcap nor pcapng"},
		{"cut in a packet", whole[:len(whole)-3], "cut short"},
		{"cut in a header", whole[:24+7], "cut short"},
		{"an unknown link", strange, "link type 147"},
		{"an absurd length", long, "packet 1"},
		{"cut gzip", shape{link: layers.LinkTypeRaw, zip: true}.file(t, talk)[:90], "cut short"},
		{"cut pcapng", ng[:len(ng)-3], "cut short"},
	} {
		_, err := notes(bytes.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", c.name, err, c.want)
		}
	}
	got, _ := notes(bytes.NewReader(whole[:len(whole)-3]))
	if len(got) != 1 || got[0].data[0] != "hello world" || !got[0].closed {
		t.Errorf("of a file that is cut short: %+v", got)
	}
}

// A panic of a Sink is not taken for a bad capture.
func TestLetsPanicsOfSinksPass(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the panic was swallowed")
		}
	}()
	_ = Read(bytes.NewReader(shape{link: layers.LinkTypeRaw}.file(t, talk)), func(Conn) Sink { return bomb{} })
}

type bomb struct{}

func (bomb) Data(parser.Side, []byte) { panic("boom") }
func (bomb) Gap(parser.Side)          {}
func (bomb) Close(bool)               {}

// No bytes make Read panic, or deliver more than they hold.
func FuzzRead(f *testing.F) {
	for _, sh := range []shape{{link: layers.LinkTypeRaw}, {link: layers.LinkTypeEthernet, ng: true}, {link: layers.LinkTypeLinuxSLL, v6: true}} {
		f.Add(sh.file(f, talk))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _ := notes(bytes.NewReader(b))
		total := 0
		for _, n := range got {
			total += len(strings.ReplaceAll(n.data[0]+n.data[1], "…", ""))
			if !n.closed {
				t.Error("a Sink was not closed")
			}
		}
		if total > len(b) && b[0] != 0x1f {
			t.Errorf("%d bytes delivered of a file of %d", total, len(b))
		}
	})
}

// A capture of nothing but SYNs, one for each connection, as of a scan, takes little memory for each.
func TestConnectionsWithoutBytesAreSmall(t *testing.T) {
	var file bytes.Buffer
	w := pcapgo.NewWriter(&file)
	if err := w.WriteFileHeader(65535, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	const n = 50_000
	b := shape{link: layers.LinkTypeRaw}.packet(t, step{flags: syn})
	for i := range n {
		binary.BigEndian.PutUint16(b[16:], uint16(i>>12)) // of the server's address
		binary.BigEndian.PutUint16(b[20:], uint16(i)|1<<15)
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, 0), CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := newTable(func(Conn) Sink { return &note{} })
	packets, err := newSource(&file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := packets.next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = table.add(p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if len(table.all) < n/2 {
		t.Fatalf("%d connections of %d", len(table.all), n)
	}
	if each := int(after.HeapAlloc-before.HeapAlloc) / len(table.all); each > 1024 {
		t.Errorf("%d bytes for each connection", each)
	}
	table.close()
}
