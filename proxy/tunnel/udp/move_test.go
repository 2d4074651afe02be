package udp

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require/freeport"
)

// movers is connect where both ends know a key. Each move is sent to moves: whether the hosts have changed.
func movers(t testing.TB, l *Listener) (client, server *Conn, moves chan bool) {
	client, server = connect(t, l)
	moves = make(chan bool, 100)
	for _, c := range []*Conn{client, server} {
		c.SetKey([]byte("secret"), func(far bool) { moves <- far })
	}
	return client, server, moves
}

// rebind has the client's datagrams leave from another port, as a NAT does that has forgotten a mapping.
func rebind(t testing.TB, c *Conn) {
	t.Helper()
	s, _, err := connected(context.Background(), c.RemoteAddr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	old := c.socket.Swap(s)
	c.way.moveTo(s, netip.AddrPort{}, nil)
	old.Close()
}

// brings checks that a datagram gets through; again is called before each repetition.
func brings(t *testing.T, from, to *Conn, text string, again func()) {
	t.Helper()
	b := make([]byte, 2000)
	for until := time.Now().Add(time.Minute); time.Now().Before(until); again() {
		from.Write([]byte(text))
		to.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		for {
			n, err := to.Read(b)
			if err == nil && string(b[:n]) == text {
				return
			}
			if err != nil {
				break
			}
		}
	}
	t.Fatalf("%q does not come", text)
}

// dtls returns a datagram that looks like a record under a key.
func dtls(text string) string {
	return "\x17\xfe\xfd\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x05" + text
}

// TestMoves: datagrams from another port of the client's reach the connection after the client has heard that it must
// prove itself, and the server's reach the client. Neither end begins a new connection.
func TestMoves(t *testing.T) {
	l := listen(t)
	client, server, moves := movers(t, l)
	go func() { // it reads the listener's word of strays
		b := make([]byte, 2000)
		for {
			if _, err := client.Read(b); err != nil {
				return
			}
		}
	}()
	for i := range 3 {
		before := server.RemoteAddr().String()
		rebind(t, client)
		brings(t, client, server, dtls(fmt.Sprint("hello", i)), func() { time.Sleep(10 * time.Millisecond) })
		if now := server.RemoteAddr().String(); now == before || now != client.LocalAddr().String() {
			t.Errorf("the server has %v after %v, the client is at %v", now, before, client.LocalAddr())
		}
		for range 2 {
			if far := <-moves; far {
				t.Error("the hosts have changed")
			}
		}
	}
	l.mu.Lock()
	if len(l.conns) != 1 || len(l.keyed) != 1 || l.live != 1 {
		t.Errorf("%d addresses, %d keys, %d connections", len(l.conns), len(l.keyed), l.live)
	}
	l.mu.Unlock()
	client.Close()
	client.Close()
	server.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) != 0 || len(l.keyed) != 0 || l.live != 0 {
		t.Errorf("%d addresses, %d keys, %d connections are left", len(l.conns), len(l.keyed), l.live)
	}
}

// TestMovesBothWays: after a move the server's datagrams reach the client at its new address.
func TestMovesBothWays(t *testing.T) {
	client, server, moves := movers(t, listen(t))
	time.Sleep(strayAfter)
	client.Doubt()
	<-moves
	<-moves
	brings(t, server, client, "to the client", func() {})
	brings(t, client, server, "to the server", func() {})
}

// TestWriteFailsBesideMove: a write that fails while a move has the next socket taken waits for it, and not each for
// the other.
func TestWriteFailsBesideMove(t *testing.T) {
	client, _, _ := movers(t, listen(t))
	closed, _, err := connected(t.Context(), client.RemoteAddr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	client.way.moveTo(closed, netip.AddrPort{}, nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20000 {
			if err := client.WriteBatch([]byte("lostlost"), 4, 0); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Go(func() {
		for range 20000 { // as adopt does
			client.moving.mu.Lock()
			client.way.moveTo(closed, netip.AddrPort{}, nil)
			client.moving.mu.Unlock()
		}
	})
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("each waits for the other")
	}
}

// TestHeardAgain: a client that hears the server again does not move.
func TestHeardAgain(t *testing.T) {
	client, server, moves := movers(t, listen(t))
	before := client.LocalAddr().String()
	end := time.Now().Add(50 * time.Millisecond)
	for client.Heard(); time.Now().Before(end); time.Sleep(time.Millisecond) {
		client.Doubt()
		client.Heard() // as often as packets come, however long the attempt takes
	}
	select {
	case <-moves:
		t.Error("it has moved")
	default:
	}
	brings(t, client, server, "hello", func() {})
	if client.LocalAddr().String() != before {
		t.Error("it has another address")
	}
}

// TestOnlyThePeerMoves: nobody but the client moves a connection: not without the key, not by a message of the client's
// that was seen on its way, from whichever address, and not by an older one.
func TestOnlyThePeerMoves(t *testing.T) {
	l := listen(t)
	client, server, _ := movers(t, l)
	attacker := netip.MustParseAddrPort("127.0.0.9:999")
	honest := server.RemoteAddr().(*net.UDPAddr).AddrPort()
	elsewhere := netip.AddrPortFrom(honest.Addr(), honest.Port()^1)
	moved := func(m message, key string, count uint64, from netip.AddrPort) bool {
		m.kind, m.nonce = msgMove, client.nonce
		m.prove([]byte(key), count)
		l.take(from, nil, m.append(nil), 0)
		return *server.remote.Load() == from && from != honest
	}
	cookie := func(from netip.AddrPort) message {
		return message{cookie: l.baker.bake(from, client.nonce, time.Now())}
	}
	if moved(cookie(attacker), "guess", 5, attacker) {
		t.Error("moved without the key")
	}
	if moved(cookie(elsewhere), "secret", 5, attacker) {
		t.Error("moved to an address that has not shown that it receives")
	}
	seen := cookie(elsewhere)
	seen.kind, seen.nonce = msgMove, client.nonce
	seen.prove([]byte("secret"), 5)
	seen.cookie = cookie(attacker).cookie
	l.take(attacker, nil, seen.append(nil), 0)
	if *server.remote.Load() != honest {
		t.Error("moved by the client's proof with another cookie")
	}
	if !moved(cookie(elsewhere), "secret", 5, elsewhere) {
		t.Fatal("the client does not move it")
	}
	third := netip.AddrPortFrom(honest.Addr(), honest.Port()^2)
	for count := range uint64(6) {
		server.moving.began = time.Time{}
		if moved(cookie(third), "secret", count, third) {
			t.Errorf("moved again by the older message %d", count)
		}
	}
	server.moving.began = time.Time{}
	if !moved(cookie(third), "secret", 6, third) {
		t.Error("the client's next move is refused")
	}
	if moved(cookie(elsewhere), "secret", 7, elsewhere) {
		t.Error("moved twice at once")
	}
}

// TestListenerForgets: a client hears from the process that listens now that the connection is not known there, or that
// nobody listens.
func TestListenerForgets(t *testing.T) {
	address, err := freeport.Find("udp", "127.0.0.1") // one listener after the other has it, and no socket of the client's in between
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	client, server, _ := movers(t, l)
	l.Close()
	server.Close()
	l.readers.Wait()
	go func() {
		b := make([]byte, 2000)
		for {
			if _, err := client.Read(b); err != nil {
				return
			}
		}
	}()
	lost := func() {
		t.Helper()
		for began := time.Now(); !client.Lost(); time.Sleep(10 * time.Millisecond) {
			client.Write([]byte(dtls("hello")))
			if time.Since(began) > time.Minute {
				t.Fatal("the client does not hear of it")
			}
		}
	}
	lost()
	if client.Heard(); client.Lost() {
		t.Error("lost although it is heard")
	}
	again, err := Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	lost()
}

// TestStraysAreFewAndShort: a listener answers datagrams of no connection with less than it got, only so many, and none
// that does not look like ours.
func TestStraysAreFewAndShort(t *testing.T) {
	l := listen(t)
	raw, err := net.Dial("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	answer := func(question string, within time.Duration) []byte {
		raw.Write([]byte(question))
		raw.SetReadDeadline(time.Now().Add(within))
		b := make([]byte, 2000)
		n, _ := raw.Read(b)
		return b[:n]
	}
	for _, question := range []string{"", "hello", dtls(""), "\x16" + dtls("a handshake")[1:], "\x17\xfe\xfd\x00\x00" + dtls("in clear")[5:],
		string((&message{kind: msgStray}).append(nil)), string((&message{kind: msgGone}).append(nil))} {
		if got := answer(question, 100*time.Millisecond); len(got) > 0 {
			t.Errorf("%x answers %q", got, question)
		}
	}
	question := dtls("x")
	if got := answer(question, 10*time.Second); !bytes.Equal(got, (&message{kind: msgStray}).append(nil)) || len(got) > len(question) {
		t.Errorf("%x answers %q", got, question)
	}
	now, told := time.Now().Add(time.Hour), 0
	for range 5 * maxStrays {
		if l.mayTellStray(now) {
			told++
		}
	}
	if told != maxStrays || !l.mayTellStray(now.Add(time.Second)) {
		t.Errorf("%d strays are told in a second", told)
	}
}

// TestDisplaced: a client that has the address of another one now takes it, and the other one still can move.
func TestDisplaced(t *testing.T) {
	l := listen(t)
	client, server, moves := movers(t, l)
	from := server.RemoteAddr().(*net.UDPAddr).AddrPort()
	begin := message{kind: msgBegin, nonce: nonce{9}, cookie: l.baker.bake(from, nonce{9}, time.Now())}
	l.take(from, nil, begin.append(nil), 0)
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l.take(from, nil, []byte("for the other one"), 0)
	b := make([]byte, 100)
	other.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := other.Read(b); err != nil || string(b[:n]) != "for the other one" {
		t.Errorf("%q, %v", b[:n], err)
	}
	time.Sleep(strayAfter)
	client.Doubt()
	<-moves
	<-moves
	brings(t, client, server, "from another port", func() {})
}

// FuzzListener: no datagram moves a connection without its key, or ends it.
func FuzzListener(f *testing.F) {
	m := message{kind: msgMove, nonce: nonce{1}, cookie: make([]byte, cookieLen), proof: make([]byte, proofLen)}
	f.Add(m.append(nil), uint64(1))
	f.Add((&message{kind: msgGone, nonce: nonce{1}}).append(nil), uint64(0))
	l := listen(f)
	client, server, _ := movers(f, l)
	home := *server.remote.Load()
	f.Fuzz(func(t *testing.T, b []byte, count uint64) {
		from := netip.MustParseAddrPort("127.0.0.9:999")
		l.take(from, nil, b, 0)
		if m, ok := parseMessage(b); ok && len(m.proof) > 0 && len(m.cookie) > 0 { // with a good cookie and nonce as well
			m.nonce, m.cookie = client.nonce, l.baker.bake(from, client.nonce, time.Now())
			l.take(from, nil, m.append(nil), 0)
		}
		select {
		case <-server.closed:
			t.Fatal("ended")
		default:
		}
		if *server.remote.Load() != home {
			t.Fatal("moved")
		}
	})
}
