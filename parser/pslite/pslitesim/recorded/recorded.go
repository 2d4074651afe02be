// Package recorded gives tests the connections of recorded ps-lite jobs: packet captures NAME.pcap.gz in the directory
// that GRADPROXY_CAPTURES names.
package recorded

import (
	"bytes"
	"net"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
)

// MXNet returns the names of the recorded jobs of MXNet 1.9.1.
func MXNet() []string {
	return []string{
		"pslite-mxnet-sync", "pslite-mxnet-local", "pslite-mxnet-async", "pslite-mxnet-2bit", "pslite-mxnet-half",
		"pslite-mxnet-sparse", "pslite-mxnet-raw", "pslite-mxnet-p3",
	}
}

// Others returns the names of the recorded jobs of other programs on the same library, two of them with ZMTP 3.1.
func Others() []string { return []string{"pslite-kvapp", "pslite-mxlike", "pslite-zmtp30"} }

// A Connection is one of a job's, from its first byte to its last.
type Connection = capturetest.Recorded

// Open reads the connections of a recorded job with any bytes of the client. Without GRADPROXY_CAPTURES it skips the
// test.
func Open(t testing.TB, name string) []*Connection {
	t.Helper()
	return capturetest.Read(t, require.Captures(t, name+".pcap.gz")[0])
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
