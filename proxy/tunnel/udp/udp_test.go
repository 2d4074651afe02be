package udp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

func listen(t testing.TB) *Listener {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// connect returns the two ends of a connection.
func connect(t testing.TB, l *Listener) (client, server *Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := Dial(ctx, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); accepted.Close() })
	return client, accepted.(*Conn)
}

// leave sends datagrams, one by one or as many together as may be.
func leave(t testing.TB, c *Conn, together bool, mark Mark, datagrams ...[]byte) {
	t.Helper()
	for len(datagrams) > 0 {
		b, each, n := bytes.Clone(datagrams[0]), len(datagrams[0]), 1
		for together && n < min(len(datagrams), MaxBatch) && len(b) == n*each && len(datagrams[n]) <= each && len(b)+len(datagrams[n]) <= MaxBatchBytes {
			b = append(b, datagrams[n]...)
			n++
		}
		if err := c.WriteBatch(b, each, mark); err != nil {
			t.Fatal(err)
		}
		datagrams = datagrams[n:]
	}
}

// TestDatagrams: datagrams arrive one by one, whether they leave alone or together.
func TestDatagrams(t *testing.T) {
	l := listen(t)
	client, server := connect(t, l)
	other, far := connect(t, l)
	for _, c := range []*Conn{server, far} {
		c.SetRoom(1 << 20)
	}
	for name, way := range map[string]struct{ from, to *Conn }{
		"to the server": {client, server}, "to the client": {server, client}, "of another client": {other, far}, "to another client": {far, other},
	} {
		for _, together := range []bool{false, true} {
			var sent [][]byte
			for i := range 100 { // loopback loses none of so few
				size := 1200
				if i%7 == 6 {
					size = 20 + i
				}
				b := bytes.Repeat([]byte{byte(i)}, size)
				sent = append(sent, b)
			}
			leave(t, way.from, together, 0, sent...)
			way.to.SetReadDeadline(time.Now().Add(time.Minute))
			b := make([]byte, 2000)
			for i, want := range sent {
				n, err := way.to.Read(b)
				if err != nil || !bytes.Equal(b[:n], want) {
					t.Fatalf("%s, together %v: datagram %d is of %d bytes, %v, want %d", name, together, i, n, err, len(want))
				}
			}
		}
	}
}

// TestAnswersLeaveFromTheAskedAddress: a listener on all addresses answers from the one to which a client has sent,
// since the client takes datagrams from no other.
func TestAnswersLeaveFromTheAskedAddress(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
		l, err := Listen(address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		client, err := Dial(ctx, fmt.Sprintf("127.0.0.2:%d", l.Addr().(*net.UDPAddr).Port)) // the kernel would answer from 127.0.0.1
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		leave(t, server.(*Conn), true, 0, []byte("one"), []byte("two"), []byte("3"))
		client.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 100)
		for _, want := range []string{"one", "two", "3"} {
			if n, err := client.Read(b); string(b[:n]) != want {
				t.Errorf("%s: %q, %v, want %q", address, b[:n], err, want)
			}
		}
	}
}

// TestNothingIsKeptForStrangers: a listener keeps nothing for an address before it has echoed its cookie, and sends no
// more bytes than it was sent.
func TestNothingIsKeptForStrangers(t *testing.T) {
	l := listen(t)
	raw, err := net.Dial("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	exchange := func(m message) message {
		t.Helper()
		question := m.append(nil)
		raw.Write(question)
		raw.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 2000)
		n, err := raw.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if n > len(question) {
			t.Errorf("%d bytes answer %d", n, len(question))
		}
		answer, _ := parseMessage(b[:n])
		return answer
	}
	kept := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.conns)
	}
	cookie := exchange(message{kind: msgAsk, nonce: nonce{1}, cookie: make([]byte, cookieLen)})
	if cookie.kind != msgCookie {
		t.Fatalf("answer %+v", cookie)
	}
	good := bytes.Clone(cookie.cookie)
	from := raw.LocalAddr().(*net.UDPAddr).AddrPort()
	for name, m := range map[string]message{
		"no cookie":        {kind: msgBegin, nonce: nonce{1}, cookie: make([]byte, cookieLen)},
		"changed":          {kind: msgBegin, nonce: nonce{1}, cookie: append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1)},
		"of another nonce": {kind: msgBegin, nonce: nonce{2}, cookie: good},
		"of another port":  {kind: msgBegin, nonce: nonce{1}, cookie: l.baker.bake(netip.AddrPortFrom(from.Addr(), from.Port()+1), nonce{1}, time.Now())},
		"of another host":  {kind: msgBegin, nonce: nonce{1}, cookie: l.baker.bake(netip.AddrPortFrom(from.Addr().Next(), from.Port()), nonce{1}, time.Now())},
		"old":              {kind: msgBegin, nonce: nonce{1}, cookie: l.baker.bake(from, nonce{1}, time.Now().Add(-time.Minute))},
	} {
		raw.Write(m.append(nil)) // has no answer: the next one is that to the next question
		if answer := exchange(message{kind: msgAsk, nonce: nonce{3}, cookie: make([]byte, cookieLen)}); answer.kind != msgCookie || answer.nonce != (nonce{3}) || kept() > 0 {
			t.Errorf("%s: answer %+v, %d connections", name, answer, kept())
		}
	}
	raw.Write([]byte{22, 254, 253, 0, 0}) // DTLS without a beginning
	if answer := exchange(message{kind: msgBegin, nonce: nonce{1}, cookie: good}); answer.kind != msgWelcome || kept() != 1 {
		t.Errorf("the right cookie: answer %+v, %d connections", answer, kept())
	}
	if answer := exchange(message{kind: msgBegin, nonce: nonce{1}, cookie: good}); answer.kind != msgWelcome || kept() != 1 {
		t.Errorf("again, since the answer may be lost: %+v, %d connections", answer, kept())
	}
}

// TestDialFails: nobody answers, or nobody listens.
func TestDialFails(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, silent.LocalAddr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	silent.Close()
	ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := Dial(ctx, silent.LocalAddr().String()); err == nil || ctx.Err() != nil {
		t.Errorf("nobody listens: %v", err)
	}
}

// TestEachAddressIsDialed: of a host's addresses the one counts that answers, also behind one where nobody listens and
// one that is silent.
func TestEachAddressIsDialed(t *testing.T) {
	nobody, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l := listen(t)
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		t.Cleanup(cancel)
		return ctx
	}
	c, err := Dialer{}.dialEach(within(4*time.Second), []string{nobody.LocalAddr().String(), silent.LocalAddr().String(), l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c, err = Dial(within(10*time.Second), fmt.Sprintf("localhost:%d", l.Addr().(*net.UDPAddr).Port)); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if _, err := Dial(within(10*time.Second), "no-such-host.invalid:1"); !errors.As(err, new(*net.DNSError)) {
		t.Errorf("of a name that is not known: %v", err)
	}
	if _, err := (Dialer{}).dialEach(within(300*time.Millisecond), []string{silent.LocalAddr().String(), nobody.LocalAddr().String()}); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no address answers: %v", err)
	}
}

// TestEnds: Close ends a Read, a deadline too, and a listener's connections outlive it.
func TestEnds(t *testing.T) {
	l := listen(t)
	client, server := connect(t, l)
	for name, c := range map[string]*Conn{"client": client, "server": server} {
		for range 2 {
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v after the deadline", name, err)
			}
		}
		c.SetReadDeadline(time.Time{})
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	fmt.Fprint(client, "hello")
	b := make([]byte, 10)
	if n, err := server.Read(b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("after the listener's end: %q, %v", b[:n], err)
	}
	for _, c := range []*Conn{client, server} {
		failed := make(chan error)
		go func() { _, err := c.Read(b); failed <- err }()
		c.Close()
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read after Close: %v", err)
		}
		if _, err := c.Write(b); err == nil {
			t.Error("Write after Close succeeds")
		}
	}
	l.readers.Wait() // the last connection has closed the socket
}

// FuzzMessage: no datagram is mistaken for a message that it is not.
func FuzzMessage(f *testing.F) {
	m := message{kind: msgAsk, nonce: nonce{1}, cookie: make([]byte, cookieLen)}
	f.Add(m.append(nil))
	f.Add((&message{kind: msgWelcome, nonce: nonce{1}, id: make([]byte, IDLen)}).append(nil))
	f.Add((&message{kind: msgGone, id: make([]byte, IDLen)}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, ok := parseMessage(b); ok && !bytes.Equal(m.append(nil), b) {
			t.Errorf("%x reads as %+v", b, m)
		}
	})
}

// TestFilter: datagrams that a connection's filter refuses do not wait for a Read, unless they came together with
// another. They are counted, since they have crossed the network.
func TestFilter(t *testing.T) {
	l := listen(t)
	client, server := connect(t, l)
	server.SetFilter(func(d []byte) bool { return d[0] == 'y' })
	for range 100 {
		leave(t, client, false, 0, []byte("no"))
	}
	leave(t, client, false, 0, []byte("yes"))
	server.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 10)
	if n, err := server.Read(b); err != nil || string(b[:n]) != "yes" {
		t.Errorf("%q came, %v", b[:n], err)
	}
	if _, received := server.Network(); received != 100*(ip4Header+udpHeader+2)+ip4Header+udpHeader+3 {
		t.Errorf("%d bytes were counted", received)
	}
	if a := (arrived{rest: []byte("noyes"), each: 2}); !server.passes(a) || len(a.rest) != 5 {
		t.Error("of datagrams that came together one is worth a look, and none passes")
	}
}

// TestDatagramsAreValidTogether: datagrams of several reads are as they came until the first call of Next after one
// that says that there are no more, and then their memory is free for others. Next says that there are more only where
// a further call returns at once.
func TestDatagramsAreValidTogether(t *testing.T) {
	client, server := connect(t, listen(t))
	server.SetRoom(4 << 20)
	for name, way := range map[string]struct{ from, to *Conn }{"to the server": {client, server}, "to the client": {server, client}} {
		const reads, each, count = 6, 1000, 20 // of count datagrams
		together := 0
		next := byte(0)
		for until := time.Now().Add(time.Minute); together <= 2*count && time.Now().Before(until); {
			for i := range reads {
				var b []byte
				for j := range count {
					b = append(b, bytes.Repeat([]byte{next + byte(i*count+j)}, each)...)
				}
				if err := way.from.WriteBatch(b, each, 0); err != nil {
					t.Fatal(err)
				}
			}
			for got := 0; got < reads*count; {
				var valid [][]byte
				way.to.SetReadDeadline(time.Now().Add(time.Minute))
				for more := true; more; {
					d, _, m, err := way.to.Next()
					if err != nil {
						t.Fatalf("%s: datagram %d: %v, behind one that says that more are there: %v", name, got+len(valid), err, len(valid) > 0)
					}
					valid, more = append(valid, d), m
					way.to.SetReadDeadline(time.Unix(1, 0)) // a call that waits fails
				}
				for i, d := range valid {
					if want := bytes.Repeat([]byte{next + byte(got+i)}, each); !bytes.Equal(d, want) {
						t.Fatalf("%s: datagram %d is %d bytes %x, want %x", name, got+i, len(d), d[0], want[0])
					}
				}
				got, together = got+len(valid), max(together, len(valid))
			}
			next += reads * count
		}
		if together <= 2*count {
			t.Errorf("%s: only %d datagrams were valid together", name, together)
		}
	}
	if _, err := client.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	server.SetReadDeadline(time.Now().Add(time.Minute))
	if d, _, more, err := server.Next(); string(d) != "last" || more || err != nil {
		t.Fatalf("%q, %v, %v", d, more, err)
	}
	if n, want := server.queued.Load(), int64(len(server.now.buffer.data)); n != want || len(server.spent) > 0 {
		t.Errorf("%d bytes are held for a datagram in a buffer of %d, and %d buffers", n, want, len(server.spent))
	}
}
