package upgrade

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/gradproxy/gradproxy/proxy"
)

// Messages and a state arrive as they were written, however long.
func TestMessagesAndState(t *testing.T) {
	var b bytes.Buffer
	want := Answer{Protocol: Protocol, Version: "v1", PID: 7, Listeners: []string{"127.0.0.1:9000"}, Connections: []proxy.Handed{
		{Peer: "tokyo", Client: netip.MustParseAddrPort("10.1.0.1:5000"), Server: netip.MustParseAddrPort("[2001:db8::1]:9000"), Number: 3, Tag: 1 << 63, Opener: true, FIN: true},
		{Client: netip.MustParseAddrPort("10.1.0.1:5001"), Server: netip.MustParseAddrPort("10.2.0.1:9000")}}}
	if err := writeMessage(&b, &want); err != nil {
		t.Fatal(err)
	}
	state := make([]byte, 3*maxPiece+5)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range state {
		state[i] = byte(r.Uint32())
	}
	pieces := pieceWriter{&b}
	for _, part := range [][]byte{state[:1], state[1 : 2*maxPiece], state[2*maxPiece:]} {
		if n, err := pieces.Write(part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := pieces.end(); err != nil {
		t.Fatal(err)
	}
	b.WriteString("more")
	var got Answer
	if err := readMessage(&b, &got, maxMessage); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
	if came, err := io.ReadAll(&pieceReader{r: &b}); err != nil || !bytes.Equal(came, state) {
		t.Fatalf("%d bytes of state, %v, want the %d that were written", len(came), err, len(state))
	}
	if b.String() != "more" {
		t.Errorf("%q is left, want what was written behind", b.String())
	}
}

// A message or a state that is cut short is an error, and so is one that is too long, before memory is taken for it.
func TestBrokenMessages(t *testing.T) {
	var q Request
	for _, text := range []string{"", "\x00", "\x00\x00\x00\x05{}", "\xff\xff\xff\xff{}", "\x00\x00\x00\x02[]", "\x00\x00\x00\x01{"} {
		if err := readMessage(bytes.NewReader([]byte(text)), &q, maxPiece); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
	for _, text := range []string{"", "\x00\x00\x00\x02a", "\x00\x00\x00\x01a", "\xff\xff\xff\xff"} {
		if _, err := io.ReadAll(&pieceReader{r: bytes.NewReader([]byte(text))}); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("state %q: %v, want an error", text, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	var b bytes.Buffer
	writeMessage(&b, &Answer{Protocol: 1, Connections: []proxy.Handed{{Peer: "tokyo"}}})
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		var a Answer
		if readMessage(r, &a, maxMessage) != nil {
			return
		}
		if _, err := io.ReadAll(&pieceReader{r: r}); err == nil && r.Len() == len(b) {
			t.Error("a state came out of nothing")
		}
	})
}
