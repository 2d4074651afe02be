package pslitesim

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/recorded"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// This package encodes the content of every recorded meta as ps-lite did: the same fields in the same order.
func TestSameMetasAsPSLite(t *testing.T) {
	kinds := make(map[int32]int) // by command; 0: no control message
	for _, name := range slices.Concat(recorded.MXNet(), recorded.Others()) {
		for _, c := range recorded.Open(t, name) {
			conn, err := zmtp.Handshake(t.Context(), recorded.Play(c.FromClient), zmtp.Socket{Type: zmtp.Router}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for {
				frames, err := conn.ReadMessage()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				m, err := ParseMeta(frames[0])
				if err != nil {
					t.Fatal(err)
				}
				if got := m.Append(nil); !bytes.Equal(got, frames[0]) {
					t.Fatalf("%s: %+v is % x, want % x", name, m, got, frames[0])
				}
				if m.Control == nil {
					kinds[0]++
				} else {
					kinds[m.Control.Command]++
				}
			}
		}
	}
	for _, command := range []int32{0, Terminate, AddNode, Barrier, Heartbeat} {
		if kinds[command] == 0 {
			t.Errorf("no message of command %d was recorded", command)
		}
	}
	t.Logf("messages by command: %v", kinds)
}
