package gloosim

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// The bytes that torch sends to announce 303,064 bytes of all-reduce 6.
func TestPreambleIsGloos(t *testing.T) {
	want, _ := hex.DecodeString(strings.ReplaceAll(
		"3000000000000000 0200000000000000 0000000600000004 0000000000000000 d89f040000000000 0000000000000000", " ", ""))
	got := preamble{notifySendReady, slot(AllReduce, 6), 303064}.appendTo(nil)
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
	back, err := parsePreamble(got)
	if err != nil || back != (preamble{notifySendReady, slot(AllReduce, 6), 303064}) {
		t.Errorf("parsed as %+v, %v", back, err)
	}
	for i := range want {
		if i >= 16 && i < 24 || i >= 32 && i < 40 {
			continue // the slot may be anything, and so may the length without payload
		}
		bad := bytes.Clone(want)
		bad[i] ^= 0x84
		if _, err := parsePreamble(bad); err == nil {
			t.Errorf("byte %d changed: no error", i)
		}
	}
}

// The greater of two addresses that differ in their IP, or in the port only, connects: 0x0201 is less than 0x0102 in
// network order read as a little-endian number.
func TestTheGreaterAddressConnects(t *testing.T) {
	for _, c := range []struct{ greater, less string }{
		{"10.0.0.2:1", "10.0.0.1:9"},
		{"10.0.1.1:1", "10.0.0.200:1"},
		{"10.0.0.1:258", "10.0.0.1:513"},
		{"10.0.0.1:33599", "10.0.0.1:20000"},
		{"[2001:db8::2]:1", "[2001:db8::1]:9"},
	} {
		greater, less := netip.MustParseAddrPort(c.greater), netip.MustParseAddrPort(c.less)
		if !initiates(greater, less) || initiates(less, greater) {
			t.Errorf("%v does not connect to %v", greater, less)
		}
	}
}

// The initiator writes its rank, 8 bytes in one write, before anything else; nobody else greets.
func TestSequenceNumberComesFirstAndAlone(t *testing.T) {
	for _, noSequence := range []bool{false, true} {
		m := newMesh(t, 3, meshOptions{noSequence: noSequence, tapped: true})
		m.each(t, func(g *Group) error { return g.AllReduce(make([]byte, 4096)).Wait() })
		greeted := 0
		for rank, taps := range m.taps {
			for peer, tap := range taps {
				if tap == nil {
					continue
				}
				stream := tap.stream()
				if !noSequence && tap.first == sequenceLen {
					greeted++
					if seq := binary.LittleEndian.Uint64(stream); seq != uint64(rank) {
						t.Errorf("rank %d says to %d that it is %d", rank, peer, seq)
					}
					stream = stream[sequenceLen:]
				}
				if _, err := parseOps(stream); err != nil {
					t.Errorf("rank %d to %d, noSequence=%v: %v", rank, peer, noSequence, err)
				}
			}
		}
		if want := map[bool]int{false: 3, true: 0}[noSequence]; greeted != want {
			t.Errorf("noSequence=%v: %d sequence numbers, want %d", noSequence, greeted, want)
		}
	}
}

// The two-way agreement of a transfer, op by op, with a peer that is played by the test.
func TestPayloadWaitsForRoom(t *testing.T) {
	ours, theirs := net.Pipe()
	p := newPair(ours, 0, 0)
	defer p.fail(ErrClosed)
	defer theirs.Close()
	s := slot(Broadcast, 1)
	done := make(chan error, 2)

	p.send(s, transfer{[]byte("early"), done})
	expect(t, theirs, preamble{notifySendReady, s, 5}, "")
	say(t, theirs, preamble{notifyRecvReady, s, 5}, "")
	expect(t, theirs, preamble{sendUnboundBuffer, s, 5}, "early")

	// Room that comes first is used at once: both ops follow each other.
	say(t, theirs, preamble{notifyRecvReady, s, 4}, "")
	say(t, theirs, preamble{notifySendReady, s, 3}, "")
	got := make([]byte, 3)
	p.recv(s, transfer{got, done})
	expect(t, theirs, preamble{notifyRecvReady, s, 3}, "")
	say(t, theirs, preamble{sendUnboundBuffer, s, 3}, "got")
	p.send(s, transfer{[]byte("late"), done})
	expect(t, theirs, preamble{notifySendReady, s, 4}, "")
	expect(t, theirs, preamble{sendUnboundBuffer, s, 4}, "late")
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if string(got) != "got" {
		t.Errorf("received %q", got)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.slots) != 0 {
		t.Errorf("%d slots are kept after all is done", len(p.slots))
	}
}

// A broken peer, or a broken proxy, fails the pair, and with it the transfer that waits.
func TestBrokenPeersFailThePair(t *testing.T) {
	s := slot(AllReduce, 0)
	announce := preamble{notifySendReady, s, 4}.appendTo(nil)
	pay := func(n uint64) []byte {
		return append(preamble{sendUnboundBuffer, s, n}.appendTo(nil), make([]byte, n)...)
	}
	unknown := bytes.Clone(announce)
	unknown[8] = 9
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"not announced": {pay(4), "not agreed upon"},
		"too long":      {append(bytes.Clone(announce), pay(8)...), "payload of 8 bytes, 4 announced"},
		"twice":         {append(append(bytes.Clone(announce), pay(4)...), pay(4)...), "not agreed upon"},
		"unknown op":    {unknown, "unknown opcode 9"},
		"cut short":     {append(bytes.Clone(announce), pay(4)[:50]...), "unexpected EOF"},
		"gone":          {nil, "peer closed the connection"},
	} {
		ours, theirs := net.Pipe()
		p := newPair(ours, 0, 0)
		done := make(chan error, 2)
		p.recv(s, transfer{make([]byte, 4), done})
		expect(t, theirs, preamble{notifyRecvReady, s, 4}, "")
		theirs.Write(c.bytes)
		theirs.Close()
		p.mu.Lock()
		for p.err == nil {
			p.filled.Wait()
		}
		err := p.err
		p.mu.Unlock()
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if name != "twice" && <-done == nil {
			t.Errorf("%s: the transfer succeeds", name)
		}
	}
}

// A peer that connects under a wrong number, or does not connect, makes Connect fail.
func TestConnectRefusesStrangers(t *testing.T) {
	addrs := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:1")}
	for _, greeting := range []string{"\x00\x00\x00\x00\x00\x00\x00\x00", "\x07\x00\x00\x00\x00\x00\x00\x00", "\x01\x00"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err == nil {
				io.WriteString(conn, greeting)
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
				conn.Close()
			}
		}()
		if _, err := Connect(t.Context(), Config{Addrs: addrs, Listeners: []net.Listener{l}}); err == nil {
			t.Errorf("greeting %q: no error", greeting)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, Config{Addrs: addrs, Listeners: []net.Listener{l}}); err == nil {
		t.Error("cancelled: no error")
	}
}

func say(t *testing.T, w io.Writer, p preamble, payload string) {
	t.Helper()
	if _, err := w.Write(append(p.appendTo(nil), payload...)); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, r io.Reader, want preamble, payload string) {
	t.Helper()
	b := make([]byte, preambleLen+len(payload))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	if full := append(want.appendTo(nil), payload...); !bytes.Equal(b, full) {
		t.Fatalf("got  %x\nwant %x", b, full)
	}
}

// parseOps returns the ops of one direction of a connection, which must end with one.
func parseOps(stream []byte) (ops []preamble, err error) {
	for len(stream) > 0 {
		if len(stream) < preambleLen {
			return ops, io.ErrUnexpectedEOF
		}
		p, err := parsePreamble(stream)
		if err != nil {
			return ops, err
		}
		stream = stream[preambleLen:]
		if p.op == sendUnboundBuffer {
			if uint64(len(stream)) < p.length {
				return ops, io.ErrUnexpectedEOF
			}
			stream = stream[p.length:]
		}
		ops = append(ops, p)
	}
	return ops, nil
}
