// Package recorded gives tests the connections of recorded ps-lite jobs: packet captures NAME.pcap.gz in the directory that
// GRADPROXY_CAPTURES names.
package recorded

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture"
)

// MXNet are the jobs of MXNet 1.9.1, and Others the jobs of programs on the same library, two of them with ZMTP 3.1.
func MXNet() []string {
	return []string{
		"pslite-mxnet-sync", "pslite-mxnet-local", "pslite-mxnet-async", "pslite-mxnet-2bit", "pslite-mxnet-half",
		"pslite-mxnet-sparse", "pslite-mxnet-raw", "pslite-mxnet-p3",
	}
}

func Others() []string { return []string{"pslite-kvapp", "pslite-mxlike", "pslite-zmtp30"} }

// A Connection is one of a job's, from its first byte to its last.
type Connection struct {
	Client, Server         netip.AddrPort
	FromClient, FromServer []byte
}

// Open reads the connections of a recorded job on which something was said. Without GRADPROXY_CAPTURES it skips the test.
func Open(t testing.TB, name string) (all []*Connection) {
	t.Helper()
	f, err := os.Open(require.Captures(t, name+".pcap.gz")[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = capture.Read(f, func(c capture.Conn) capture.Sink {
		conn := &Connection{Client: c.Client, Server: c.Server}
		return sink{t, conn, &all}
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(all) == 0 {
		t.Fatalf("%s: no connections", name)
	}
	return all
}

// A sink collects the streams of a connection.
type sink struct {
	t    testing.TB
	conn *Connection
	all  *[]*Connection
}

func (s sink) Data(from parser.Side, b []byte) {
	if from == parser.Client {
		s.conn.FromClient = append(s.conn.FromClient, b...)
	} else {
		s.conn.FromServer = append(s.conn.FromServer, b...)
	}
}

func (s sink) Gap(from parser.Side) {
	s.t.Errorf("%v to %v: the capture lacks bytes of the %v", s.conn.Client, s.conn.Server, from)
}

func (s sink) Close(bool) {
	if len(s.conn.FromClient) > 0 {
		*s.all = append(*s.all, s.conn)
	}
}

// A Playback is a connection whose other end sends recorded bytes, and does not listen.
type Playback struct {
	net.Conn              // nil
	In       bytes.Reader // bytes to be read
	Out      bytes.Buffer // bytes that were written
}

// Play returns a Playback of the other end's bytes.
func Play(said []byte) *Playback {
	p := new(Playback)
	p.In.Reset(said)
	return p
}

func (p *Playback) Read(b []byte) (int, error)  { return p.In.Read(b) }
func (p *Playback) Write(b []byte) (int, error) { return p.Out.Write(b) }

// Close implements net.Conn.
func (p *Playback) Close() error { return nil }
