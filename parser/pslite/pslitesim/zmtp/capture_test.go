package zmtp_test

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/recorded"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// This package writes every byte of every recorded connection of libzmq 4.2 and 4.3: as the end that
// connects it is played the other end's bytes, and sends the same messages, and the other way round.
func TestSameBytesAsLibzmq(t *testing.T) {
	for _, name := range slices.Concat(recorded.MXNet(), recorded.Others(), []string{"pslite-byteps"}) {
		messages := 0
		for _, c := range recorded.Open(t, name) {
			client := read(t, c.FromClient)
			server := read(t, c.FromServer)
			write(t, c.FromServer, client, c.FromClient)
			write(t, c.FromClient, server, c.FromServer)
			messages += len(client.messages) + len(server.messages)
		}
		t.Logf("%s: %d messages", name, messages)
	}
}

// said is the socket and the messages of one end of a connection.
type said struct {
	socket   zmtp.Socket
	messages [][][]byte
}

// read reads all that an end said.
func read(t *testing.T, stream []byte) (s said) {
	t.Helper()
	var counter zmtp.Counter
	conn, err := zmtp.Handshake(t.Context(), recorded.Play(stream), zmtp.Socket{Type: zmtp.Router}, &counter)
	if err != nil {
		t.Fatal(err)
	}
	s.socket = conn.Peer
	for {
		m, err := conn.ReadMessage()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		s.messages = append(s.messages, m)
	}
	if n := counter.Received.Load(); n != int64(len(stream)) {
		t.Errorf("%d bytes counted of %d that were read", n, len(stream))
	}
	return s
}

// write sends an end's messages to a playback of the peer, all in one write and each message in its own.
func write(t *testing.T, peer []byte, s said, want []byte) {
	t.Helper()
	for _, step := range []int{1, max(1, len(s.messages))} {
		var counter zmtp.Counter
		p := recorded.Play(peer)
		conn, err := zmtp.Handshake(t.Context(), p, s.socket, &counter)
		if err != nil {
			t.Fatal(err)
		}
		for batch := range slices.Chunk(s.messages, step) {
			if err := conn.WriteMessages(batch); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(p.Out.Bytes(), want) {
			t.Errorf("%+v with %d messages: %d bytes written that are not the %d of libzmq", s.socket, len(s.messages), p.Out.Len(), len(want))
		}
		if n := counter.Sent.Load(); n != int64(len(want)) {
			t.Errorf("%d bytes counted of %d that were written", n, len(want))
		}
	}
}
