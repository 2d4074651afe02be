package zmtp

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/recorded"
)

// unhex reads hexadecimal text with blanks.
func unhex(text string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// The first bytes of a ROUTER of libzmq 4.2.2.
var router = unhex(`ff0000000000000001 7f 03 00 4e554c4c00000000000000000000000000000000 00
	00000000000000000000000000000000000000000000000000000000000000
	04 29 05 5245414459 0b 536f636b65742d54797065 00000006 524f55544552 08 4964656e74697479 00000000`)

// dealer connects as ps9 to an end that sends a ROUTER's bytes, and then more.
func dealer(t *testing.T, more ...byte) (*Conn, *recorded.Playback) {
	t.Helper()
	p := recorded.Play(slices.Concat(router, more))
	conn, err := Handshake(t.Context(), p, Socket{Type: Dealer, Identity: "ps9"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, p
}

// The greeting and READY of node 9 of a job of MXNet.
func TestHandshakeOfADealer(t *testing.T) {
	conn, p := dealer(t)
	want := unhex(`ff0000000000000004 7f 03 00 4e554c4c00000000000000000000000000000000 00
		00000000000000000000000000000000000000000000000000000000000000
		04 2c 05 5245414459 0b 536f636b65742d54797065 00000006 4445414c4552 08 4964656e74697479 00000003 707339`)
	if !bytes.Equal(p.Out.Bytes(), want) {
		t.Errorf("wrote % x, want % x", p.Out.Bytes(), want)
	}
	if want := (Socket{Type: Router}); conn.Peer != want {
		t.Errorf("peer %+v, want %+v", conn.Peer, want)
	}
	if _, err := conn.ReadMessage(); err != io.EOF {
		t.Errorf("got %v at the end, want io.EOF itself", err)
	}
}

// lockstep sends its bytes in pieces, and logs the order of events.
type lockstep struct {
	net.Conn
	said [][]byte
	log  []string
}

func (l *lockstep) Read(b []byte) (int, error) {
	n := copy(b, l.said[0])
	l.said = l.said[1:]
	l.log = append(l.log, fmt.Sprint("read ", n))
	return n, nil
}

func (l *lockstep) Write(b []byte) (int, error) {
	l.log = append(l.log, fmt.Sprint("write ", len(b)))
	return len(b), nil
}

func (l *lockstep) Close() error { return nil }

// Like libzmq, neither end says more than the other has shown that it understands: a relay that waits for a whole
// greeting would wait for ever.
func TestGreetingIsInLockstep(t *testing.T) {
	l := &lockstep{said: [][]byte{router[:10], router[10:11], router[11:64], router[64:]}}
	if _, err := Handshake(t.Context(), l, Socket{Type: Dealer}, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"write 10", "read 10", "write 1", "read 1", "write 53", "read 53", "write 43", "read 43"}
	if !slices.Equal(l.log, want) {
		t.Errorf("%q, want %q", l.log, want)
	}
}

// Peers that do not speak ZMTP 3 with the NULL mechanism.
func TestForeignPeersAreRefused(t *testing.T) {
	change := func(at int, b ...byte) []byte {
		said := slices.Clone(router)
		copy(said[at:], b)
		return said
	}
	for name, c := range map[string]struct {
		said []byte
		want error
		text string
	}{
		"HTTP":              {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ErrGreeting, "47 45 54"},
		"ZMTP 1":            {change(9, 0), ErrGreeting, "begins with"},
		"ZMTP 2":            {change(10, 2), ErrGreeting, "version 2"},
		"CURVE":             {change(12, 'C', 'U', 'R', 'V', 'E'), ErrGreeting, `mechanism "CURVE"`},
		"cut greeting":      {router[:30], io.ErrUnexpectedEOF, "read greeting"},
		"nothing":           {nil, io.EOF, "read greeting"},
		"cut READY":         {router[:80], io.ErrUnexpectedEOF, "read READY"},
		"message":           {change(64, 0), nil, "is no command"},
		"another command":   {change(67, 'B'), nil, `"BEADY"`},
		"endless name":      {change(72, 200), nil, "ends within a property"},
		"endless value":     {change(84, 1), nil, "for a value of 16777222"},
		"body that is huge": {append(slices.Clone(router[:64]), 6, 1, 0, 0, 0, 0, 0, 0, 0), nil, "want at most"},
	} {
		_, err := Handshake(t.Context(), recorded.Play(c.said), Socket{Type: Dealer}, nil)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", name, err, c.text)
		}
	}
}

// A greeting that never ends does, with its context.
func TestHandshakeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("no time left")
	here, there := net.Pipe()
	defer there.Close()
	go func() {
		io.CopyN(io.Discard, there, signatureLen)
		cancel(reason)
	}()
	if _, err := Handshake(ctx, here, Socket{Type: Dealer}, nil); !errors.Is(err, reason) {
		t.Errorf("got %v, want %v", err, reason)
	}
	if _, err := here.Write([]byte{0}); err == nil {
		t.Error("the connection is still open")
	}
}

// Frames as they may come: long ones, LONG ones that need not be, commands that are unknown, and a PING, which is
// answered with its context.
func TestReadMessage(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 300)
	conn, p := dealer(t, slices.Concat(
		unhex("04 07 04 50494e47 0005"), // PING with a time to live of half a second, and no context
		unhex("04 09 04 50494e47 0005 6869"),
		unhex("04 04 03 466f6f"), // Foo
		unhex("01 02 6869"), unhex("03 000000000000012c"), long, unhex("00 00"),
		unhex("02 0000000000000001 41"),
	)...)
	said := p.Out.Len()
	for _, want := range [][][]byte{{[]byte("hi"), long, {}}, {[]byte("A")}} {
		got, err := conn.ReadMessage()
		if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if pongs := unhex("04 05 04 504f4e47 04 07 04 504f4e47 6869"); !bytes.Equal(p.Out.Bytes()[said:], pongs) {
		t.Errorf("answered % x, want % x", p.Out.Bytes()[said:], pongs)
	}
}

func TestReadMessageFails(t *testing.T) {
	for name, c := range map[string]struct {
		said []byte
		text string
	}{
		"cut header":               {unhex("01"), "frame 0 of a message: unexpected EOF"},
		"cut length":               {unhex("02 00000000"), "frame 0 of a message: unexpected EOF"},
		"cut body":                 {unhex("00 05 4142"), "frame 0 of a message: unexpected EOF"},
		"cut between frames":       {unhex("01 01 41"), "frame 1 of a message: unexpected EOF"},
		"unknown flags":            {unhex("10 00"), "flags 0x10"},
		"command with MORE":        {unhex("05 00"), "flags 0x05"},
		"command within a message": {unhex("01 01 41 04 04 03 466f6f"), "command within a message"},
		"ERROR":                    {unhex("04 08 05 4552524f52 6e6f"), `peer reports "no"`},
		"command without a name":   {unhex("04 02 05 41"), "is no command"},
		"huge body":                {unhex("02 ffffffffffffffff"), "want at most"},
		"endless message":          {bytes.Repeat(unhex("01 00"), maxFrames+1), "more than 64 frames"},
	} {
		conn, _ := dealer(t, c.said...)
		if _, err := conn.ReadMessage(); err == nil || err == io.EOF || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", name, err, c.text)
		}
	}
}

// Any bytes are a message or an error, and a message is the same when it is written and read again.
func FuzzReadMessage(f *testing.F) {
	f.Add(unhex("01 02 6869 03 0000000000000002 4142 00 00"))
	f.Add(unhex("04 09 04 50494e47 0005 6869 00 00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn, _ := dealer(t, b...)
		m, err := conn.ReadMessage()
		if err != nil {
			return
		}
		writer, p := dealer(t)
		said := p.Out.Len()
		if err := writer.WriteMessages([][][]byte{m}); err != nil {
			t.Fatal(err)
		}
		again, _ := dealer(t, p.Out.Bytes()[said:]...)
		if got, err := again.ReadMessage(); err != nil || !slices.EqualFunc(got, m, bytes.Equal) {
			t.Errorf("%q became %q, %v", m, got, err)
		}
	})
}
