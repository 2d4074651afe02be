package capturetest

import (
	"net/netip"
	"os"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture"
)

// A Recorded connection has all bytes of a connection in a capture.
type Recorded struct {
	Client, Server         netip.AddrPort
	FromClient, FromServer []byte
}

// Read reads the connections of a capture file on which the client sent something, in the order of their ends. A
// missing byte is an error of the test.
func Read(t testing.TB, path string) (all []*Recorded) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = capture.Read(f, func(c capture.Conn) capture.Sink {
		return &sink{t, &Recorded{Client: c.Client, Server: c.Server}, &all}
	})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(all) == 0 {
		t.Fatalf("%s: no connections", path)
	}
	return all
}

// A sink collects the streams of a connection.
type sink struct {
	t    testing.TB
	conn *Recorded
	all  *[]*Recorded
}

func (s *sink) Data(from parser.Side, b []byte) {
	if from == parser.Client {
		s.conn.FromClient = append(s.conn.FromClient, b...)
	} else {
		s.conn.FromServer = append(s.conn.FromServer, b...)
	}
}

func (s *sink) Gap(from parser.Side) {
	s.t.Errorf("%v to %v: the capture lacks bytes of the %v", s.conn.Client, s.conn.Server, from)
}

func (s *sink) Close(bool) {
	if len(s.conn.FromClient) > 0 {
		*s.all = append(*s.all, s.conn)
	}
}
