package inspect

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
)

// heads are first bytes of protocols, as their specifications or programs write them.
var heads = []struct {
	client, server string
	port           uint16
	want           string
}{
	{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "", 9999, "TLS"},
	{"\x16\x03\x01\x02\x00\x05", "", 9999, ""}, // no hello
	{"\x16\x03", "", 443, "TLS, by its port"},
	{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04", "", 50051, "HTTP/2"},
	{"", "\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64", 9092, "HTTP/2"}, // the client's bytes are missing
	{"", "\x00\x00\x12\x04\x00\x00\x00\x00\x01\x00\x03\x00\x00\x00\x64", 9092, "Kafka, by its port"},
	{"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n", 8080, "HTTP/1"},
	{"", "SSH-2.0-OpenSSH_9.9\r\n", 2222, "ssh"},
	{"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL", "", 1, "ZeroMQ"},
	{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "N", 1, "PostgreSQL"},
	{"\x00\x00\x00\x25\x00\x03\x00\x00user\x00postgres\x00", "R", 1, "PostgreSQL"},
	{"*1\r\n$4\r\nPING\r\n", "+PONG\r\n", 1, "Redis"},
	{"OPAL-TCP-BTL\x00", "", 1024, "Open MPI"},
	{"whatever", "", 2049, "NFS, by its port"},
	{"whatever", "else", 31415, ""},
	{"", "", 31415, ""},
	{"", "", 9092, ""},
}

func TestNames(t *testing.T) {
	for _, h := range heads {
		if got := nameOf([]byte(h.client), []byte(h.server), h.port); got != h.want {
			t.Errorf("%q, %q, port %d: %q, want %q", h.client, h.server, h.port, got, h.want)
		}
	}
}

// Any bytes have a name from the lists, or none, and naming them changes none.
func FuzzName(f *testing.F) {
	for _, h := range heads {
		f.Add([]byte(h.client), []byte(h.server), h.port)
	}
	f.Fuzz(func(t *testing.T, client, server []byte, port uint16) {
		before := [2]string{string(client), string(server)}
		name := nameOf(client, server, port)
		if len(name) > 40 || strings.ContainsAny(name, "<>\n\x00") {
			t.Errorf("%q", name)
		}
		if before != [2]string{string(client), string(server)} {
			t.Error("the bytes have changed")
		}
	})
}

// The store of a real job of PyTorch is named, and its connections are one line.
func TestNamesOfARecordedJob(t *testing.T) {
	r := read(t, require.Captures(t, "gloo-torch215-ddp.pcap.gz")[0], Config{})
	var found bool
	for _, h := range r.Hosts {
		found = found || h.Name == "PyTorch TCPStore" && h.Connections > 1 && h.Protocol == unknown
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !found || !strings.Contains(text.String(), "PyTorch TCPStore, client 127.0.0.1, server 127.0.0.1, port 29500, 2 connections: ") {
		t.Errorf("%v: %+v\n%s", err, r.Hosts, text.Bytes())
	}
}

// Connections are summed up by host and protocol, whatever their ports, the pair with most bytes first.
func TestHosts(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.1")
	var conns []capturetest.Conn
	var chunks []capturetest.Chunk
	for i := range uint16(12) {
		conns = append(conns, capturetest.Conn{Client: netip.AddrPortFrom(a, 4000+i), Server: netip.AddrPortFrom(b, 5000+i)})
		chunks = append(chunks, capturetest.Chunk{Conn: int(i), From: parser.Client, Bytes: []byte("nothing known")}, capturetest.Chunk{Conn: int(i), From: parser.Server, Bytes: []byte("ok")})
	}
	conns = append(conns, capturetest.Conn{Client: netip.AddrPortFrom(b, 4000), Server: netip.AddrPortFrom(a, 22)})
	chunks = append(chunks, capturetest.Chunk{Conn: 12, From: parser.Server, Bytes: append([]byte("SSH-2.0-x\r\n"), make([]byte, 1000)...)})
	r, err := Read(bytes.NewReader(capturetest.Write(conns, chunks)), Config{})
	if err != nil || len(r.Hosts) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	ssh, rest := r.Hosts[0], r.Hosts[1]
	if ssh.Name != "ssh" || ssh.Connections != 1 || ssh.FromServer != 1011 || ssh.Client != "10.0.1.1" {
		t.Errorf("%+v", ssh)
	}
	if rest.Name != "" || rest.Connections != 12 || rest.FromClient != 12*13 || rest.FromServer != 24 || len(rest.Ports) != maxPorts || rest.Lossless != 12*15 {
		t.Errorf("%+v", rest)
	}
}
