package tunnel

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// plaintext returns a DTLS record of epoch 0, as anybody can write it.
func plaintext(kind byte, number uint64, content ...byte) []byte {
	b := []byte{kind, 254, 253, 0, 0}
	for shift := 40; shift >= 0; shift -= 8 {
		b = append(b, byte(number>>shift))
	}
	return append(binary.BigEndian.AppendUint16(b, uint16(len(content))), content...)
}

// passes checks that a record gets from one Link to the other.
func passes(t *testing.T, from, to Link, text string) {
	t.Helper()
	to.SetDeadline(time.Now().Add(time.Minute))
	if _, err := from.Write(record(nil, header{kind: kindData, stream: 1}, []byte(text)...)); err != nil {
		t.Fatal(err)
	}
	if err := from.Flush(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, headerLen+len(text))
	for n := 0; n < len(got); {
		m, err := to.Read(got[n:])
		if n += m; err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	}
	if string(got[headerLen:]) != text {
		t.Fatalf("%q came for %q", got[headerLen:], text)
	}
}

// TestForgedDatagramsDoNothing: a sender that writes the addresses of a connection into datagrams, and knows no key,
// neither ends the connection nor has anything kept for it.
func TestForgedDatagramsDoNothing(t *testing.T) {
	var below *udp.Conn
	for name, forged := range map[string]func(i uint64) []byte{
		"data with the connection's id": func(i uint64) []byte {
			return (&recordForm{id: below.ID()}).whole(dtlsRecord(1, i, strings.Repeat("no key", 10)))
		},
		"data with another id": func(i uint64) []byte {
			return (&recordForm{id: []byte{1, 2, 3, byte(i)}}).whole(dtlsRecord(1, i, strings.Repeat("no key", 10)))
		},
		"close":              func(i uint64) []byte { return plaintext(21, 1000+i, 1, 0) },
		"fatal alert":        func(i uint64) []byte { return plaintext(21, 1000+i, 2, 40) },
		"data in clear":      func(i uint64) []byte { return plaintext(23, 1000+i, 'x') },
		"broken record":      func(i uint64) []byte { return plaintext(21, 1000+i, 1) },
		"unknown kind":       func(i uint64) []byte { return plaintext(99, 1000+i, 1) },
		"empty handshakes":   func(i uint64) []byte { return plaintext(22, 1000+i, make([]byte, 12*90)...) },
		"pieces of messages": func(i uint64) []byte { return plaintext(22, 1000+i, handshakePiece(i, 1000)...) },
		"close behind data": func(i uint64) []byte {
			return append(append(dtlsRecord(1, 1<<40+i, "no key"), plaintext(21, 1000+i, 1, 0)...), 0)
		},
		"encrypted handshake": func(i uint64) []byte {
			b := dtlsRecord(1, 1<<40+i, "no key")
			b[0] = 22
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := dtlsPair(t)
			below = client.mover.(*udp.Conn)
			passes(t, client, server, "before")
			passes(t, server, client, "and back")
			heap := heapNow()
			for i := range uint64(2000) {
				if _, err := below.Write(forged(i)); err != nil {
					t.Fatal(err)
				}
				if i%100 == 0 {
					time.Sleep(time.Millisecond) // so that few are lost
				}
			}
			time.Sleep(50 * time.Millisecond)
			if n := heapNow() - heap; n > 1<<20 {
				t.Errorf("%d bytes are kept for 2,000 forged datagrams", n)
			}
			passes(t, client, server, "after")
			passes(t, server, client, "and back again")
		})
	}
}

// handshakePiece returns a piece of n bytes of a long handshake message with a number of its own.
func handshakePiece(i uint64, n int) []byte {
	b := make([]byte, 12+n)
	b[0] = 11 // certificate
	b[1], b[2] = 0xff, 0xff
	binary.BigEndian.PutUint16(b[4:], uint16(i))
	b[10], b[11] = byte(n>>8), byte(n)
	return b
}

// handshakeEmpties returns n empty handshake messages, which all come before their turn.
func handshakeEmpties(n int) []byte {
	b := make([]byte, 12*n)
	for i := range n {
		b[12*i], b[12*i+5] = 11, 1 // certificates with the number 1, where 0 is awaited
	}
	return b
}

// heapNow returns the bytes that are held. It looks several times: on a busy machine much is allocated between a
// collection and the look at it.
func heapNow() int {
	smallest := math.MaxInt
	for range 4 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		smallest = min(smallest, int(m.HeapAlloc))
	}
	return smallest
}

// datagramsOnly is a Transport whose connections all send datagrams.
type datagramsOnly struct{ Transport }

func (datagramsOnly) Datagrams(net.Conn) bool { return true }

// A silentConn is a connection from an address that says nothing.
type silentConn struct {
	net.Conn // an end of a pipe
	address  net.Addr
}

func (c *silentConn) RemoteAddr() net.Addr { return c.address }

func (c *silentConn) AwaitFirst() error {
	_, err := c.Read(make([]byte, 1))
	return err
}

// TestHalfOpenDatagramsAreBounded: an address that answers the cookie, and shows no certificate, has little kept for
// each of its handshakes, whatever it sends. All addresses together have a bounded number of handshakes, however many
// may be under way over TLS.
func TestHalfOpenDatagramsAreBounded(t *testing.T) {
	t.Run("in all", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			e := newEndpoint(Config{Name: "osaka", HalfOpen: 1 << 20})
			e.ctx, e.transport = t.Context(), datagramsOnly{}
			var all sync.WaitGroup
			for i := range 4 * maxHalfOpenDatagrams {
				near, _ := net.Pipe()
				c := &silentConn{near, &net.UDPAddr{IP: net.IPv4(203, 0, byte(i>>8), byte(i)), Port: 1}}
				all.Go(func() { e.welcome(c) })
			}
			synctest.Wait()
			e.halfOpenDatagrams.mu.Lock()
			n := e.halfOpenDatagrams.groups[waits].n + e.halfOpenDatagrams.groups[underWay].n
			e.halfOpenDatagrams.mu.Unlock()
			if n == 0 || n > maxHalfOpenDatagrams {
				t.Errorf("%d handshakes over datagrams are kept, want some and at most %d", n, maxHalfOpenDatagrams)
			}
			all.Wait() // for the time that each has
		})
	})
	for name, piece := range map[string]func(i uint64) []byte{
		"empty messages": func(i uint64) []byte {
			if (i+1)*(13+12*90) > handshakeBytes { // a bound of bytes alone would leave all before this one with the handshake
				return nil
			}
			return plaintext(22, i, handshakeEmpties(90)...)
		},
		"pieces of messages": func(i uint64) []byte { return plaintext(22, i, handshakePiece(i+1, 1000)...) },
		"crumbs":             func(i uint64) []byte { return plaintext(22, i, handshakePiece(i+1, 1)...) },
		"later epochs":       func(i uint64) []byte { return dtlsRecord(1, i, string(make([]byte, 8000))) },
	} {
		t.Run(name, func(t *testing.T) {
			id := identities(t, "tokyo")
			server, err := newDTLSTransport(&Config{Identity: id("tokyo"), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ln, err := udp.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			const conns, own = 8, 64 << 10 // own: the buffer of each end of the attacker's
			var pieces [3000][]byte
			for i := range pieces {
				pieces[i] = piece(uint64(i))
			}
			heap := heapNow() + conns*own
			var wg sync.WaitGroup
			for range conns {
				conn, err := udp.Dial(ctx, ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				accepted, err := ln.Accept()
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					defer accepted.Close()
					accepted.SetDeadline(time.Now().Add(3 * time.Second))
					if l, err := server.Secure(ctx, accepted, false, func(string) error { return nil }); err == nil {
						l.Close()
						t.Error("a handshake of garbage has succeeded")
					}
				})
				wg.Go(func() {
					for i, b := range pieces {
						if i%50 == 0 {
							time.Sleep(time.Millisecond)
						}
						if b == nil {
							return
						}
						if _, err := conn.Write(b); err != nil {
							return
						}
					}
				})
			}
			largest := 0
			for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				largest = max(largest, heapNow()-heap)
			}
			if largest > conns*handshakeMemory {
				t.Errorf("%d bytes are held for each half-open handshake, over %d", largest/conns, handshakeMemory)
			}
			t.Logf("%d bytes for each", largest/conns)
			wg.Wait()
			runtime.KeepAlive(pieces)
		})
	}
}

// TestHalfOpenBounds: a handshake that shows long chains of certificates, and loses datagrams, stays within the bounds.
func TestHalfOpenBounds(t *testing.T) {
	g := &recordGate{}
	for i := range uint64(16) { // as often as a flight can leave again within handshakeWithin
		for part := range uint64(4) {
			b := plaintext(22, 4*i+part, handshakePiece(2, 900)...)
			if n, err := g.admit(make([]byte, len(b)), b, 0); n != len(b) || err != nil {
				t.Fatalf("flight %d: %d of %d bytes, %v", i, n, len(b), err)
			}
		}
	}
}

// gated returns the gate of the accepting side once a connection is up, the other end's sealer, and the data that
// comes. The records carry a connection id, if it is not nil.
func gated(t testing.TB, connection []byte) (g *recordGate, seal *sealer, came *[]string) {
	return gatedOver(t, nil, connection)
}

// gatedOver is gated where datagrams come by a connection.
func gatedOver(t testing.TB, c *udp.Conn, connection []byte) (g *recordGate, seal *sealer, came *[]string) {
	client, server := suitePair(t, suiteAES256, connection)
	g, came = &recordGate{Conn: c, form: recordForm{id: connection}, secrets: server.secured}, new([]string)
	g.secured.Store(true)
	g.settled.Store(true)
	g.openBy(&server.keys.Load().open, func(packets []packetCame) {
		for _, p := range packets {
			*came = append(*came, string(p.data))
		}
	})
	return g, &client.keys.Load().seal, came
}

// sealed returns a record of a kind.
func sealed(t testing.TB, s *sealer, kind byte, content string) []byte {
	b := append(make([]byte, s.header(), s.overhead()+len(content)), content...)
	b, err := s.record(kind, b)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGateLetsRecordsPass: once a connection is up, data is opened and does not reach pion, alerts under the key do,
// and nothing else passes.
func TestGateLetsRecordsPass(t *testing.T) {
	for name, connection := range connectionIDs {
		t.Run(name, func(t *testing.T) { testGateLetsRecordsPass(t, connection) })
	}
}

func testGateLetsRecordsPass(t *testing.T, connection []byte) {
	g, seal, came := gated(t, connection)
	forged := plaintext(21, 9, 1, 0)
	for name, c := range map[string]struct {
		in   string // d: data, a: an alert, f: a forged one; the last byte is missing behind a !
		data int
		pion int
	}{
		"data": {"d", 1, 0}, "two records": {"da", 1, 1}, "forged first": {"fd", 1, 0}, "forged between": {"dfa", 1, 1}, "forged last": {"df", 1, 0},
		"cut off": {"da!", 1, 0}, "nothing but forged": {"f", 0, 0}, "empty": {"", 0, 0}, "many": {"dddada", 4, 2},
	} {
		*came = nil
		var b, want []byte
		for _, k := range c.in {
			switch k {
			case 'd':
				b = append(b, sealed(t, seal, dtlsData, name)...)
			case 'a':
				a := sealed(t, seal, dtlsAlert, name)
				b, want = append(b, a...), append(want, g.form.plain(a, dtlsAlert)...)
			case 'f':
				b = append(b, forged...)
			case '!':
				b, want = b[:len(b)-1], nil
			}
		}
		p := make([]byte, 1000)
		n, err := g.admit(p, b, 0)
		g.handOn()
		if err != nil || string(p[:n]) != string(want) || len(*came) != c.data {
			t.Errorf("%s: %x, %v, and %d packets of data; want %x and %d", name, p[:n], err, len(*came), want, c.data)
		}
		for _, data := range *came {
			if data != name {
				t.Errorf("%s: %q came", name, data)
			}
		}
	}
}

// TestReplayedDataIsRefused: data that comes again, changed, or of another epoch is not handed on, however late; data
// in another order is.
func TestReplayedDataIsRefused(t *testing.T) {
	for name, connection := range connectionIDs {
		t.Run(name, func(t *testing.T) { testReplayedDataIsRefused(t, connection) })
	}
}

func testReplayedDataIsRefused(t *testing.T, connection []byte) {
	g, seal, came := gated(t, connection)
	var all [][]byte
	for range dtlsReplayWindow + 200 {
		all = append(all, sealed(t, seal, dtlsData, "data"))
	}
	give := func(b []byte) int {
		*came = nil
		if n, err := g.admit(nil, append([]byte(nil), b...), 0); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		g.handOn()
		return len(*came)
	}
	last := len(all) - 1
	for _, i := range []int{5, 3, last, last - dtlsReplayWindow + 1, last - 70, last - 64} {
		for _, change := range []int{0, 4, 10, g.form.header(), len(all[i]) - 1, recordLengthAt} { // type, epoch, number, content, tag, length or id: before the record itself has come
			b := append([]byte(nil), all[i]...)
			b[change] ^= 1
			if give(b) != 0 {
				t.Errorf("record %d came though byte %d was changed", i, change)
			}
		}
		if give(all[i]) != 1 {
			t.Errorf("record %d did not come", i)
		}
		for range 2 {
			if give(all[i]) != 0 {
				t.Errorf("record %d came again", i)
			}
		}
	}
	if give(all[last-dtlsReplayWindow]) != 0 || give(all[3]) != 0 {
		t.Error("a record came that is older than the window")
	}
	if n := g.open.refused(); n == 0 {
		t.Error("no forged record was counted")
	}
}

// TestOddRecordsOfThePeer: authentic records that no honest peer sends do nothing: without a type behind their content,
// with a routing message of another length, and of unknown types.
func TestOddRecordsOfThePeer(t *testing.T) {
	near, far := dtlsPair(t)
	passes(t, near, far, "before")
	w := near.writer.(*sealedWriter)
	for _, b := range [][]byte{
		sealed(t, w.seal, 0, ""), sealed(t, w.seal, 0, "\x00\x00"), sealed(t, w.seal, dtlsRouting, ""), sealed(t, w.seal, dtlsRouting, "\x00cookie"),
		sealed(t, w.seal, dtlsRouting, "\x00a long cookie"), sealed(t, w.seal, dtlsRouting, "\x63ninebytes"[:9]), sealed(t, w.seal, 99, "hello"),
		sealed(t, w.seal, dtlsWithID, "hello"), sealed(t, w.seal, dtlsCipherSpec, "\x01"), sealed(t, w.seal, dtlsHandshake, "hello"),
	} {
		if _, err := w.conn.(*udp.Conn).Write(b); err != nil {
			t.Fatal(err)
		}
	}
	passes(t, near, far, "after")
	passes(t, far, near, "and back")
	prove := routing{w.seal, near.open}
	for _, n := range []int{0, 1, 8, 9, 10} {
		b := sealed(t, far.writer.(*sealedWriter).seal, dtlsRouting, strings.Repeat("x", n))
		if m, ok := prove.Open(b); ok != (n == len(m)) {
			t.Errorf("a routing message of %d bytes reads as %x, %v", n, m, ok)
		}
	}
	data := sealed(t, far.writer.(*sealedWriter).seal, dtlsData, "123456789")
	if m, ok := prove.Open(bytes.Clone(data)); ok {
		t.Errorf("data reads as %x", m)
	}
	if _, _, _, err := near.open.fresh(data, nil); err != nil {
		t.Errorf("data that was taken for a routing message is lost: %v", err)
	}
}

// A sealCounter is a Prover that counts the messages that are to leave, and lets none do so.
type sealCounter int

func (c *sealCounter) Seal(udp.RoutingMessage) ([]byte, error)     { *c++; return nil, errWornKey }
func (c *sealCounter) Open([]byte) (m udp.RoutingMessage, ok bool) { return m, false }

// TestRoutingMessagesHaveALength: a challenge of another length than RFC 9853 has it is not answered.
func TestRoutingMessagesHaveALength(t *testing.T) {
	for name, connection := range connectionIDs {
		ln, err := udp.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		c, err := udp.Dial(t.Context(), ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var answers sealCounter
		c.SetProver(&answers, nil)
		g, seal, _ := gatedOver(t, c, connection)
		for n, want := range map[int]sealCounter{0: 0, 1: 0, 8: 0, 9: 1, 10: 0, 18: 0} {
			answers = 0
			if k, err := g.admit(make([]byte, 100), sealed(t, seal, dtlsRouting, string(make([]byte, n))), 0); k != 0 || err != nil || answers != want {
				t.Errorf("%s: %d answers to a challenge of %d bytes, of which %d pass, %v", name, answers, n, k, err)
			}
		}
	}
}

// TestReplayWindow: the window knows exactly the numbers that a plain list of the newest ones knows.
func TestReplayWindow(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	w, came, next := replayWindow{}, map[uint64]bool{}, uint64(0)
	for range 200_000 {
		var number uint64
		switch k := random.IntN(100); {
		case k < 60:
			number = next + random.Uint64N(3)
		case k < 98:
			number = max(next, dtlsReplayWindow+100) - 1 - random.Uint64N(dtlsReplayWindow+100)
		default:
			number = next + random.Uint64N(3*dtlsReplayWindow)
		}
		want := came[number] || number+dtlsReplayWindow < next
		if got := w.has(number); got != want {
			t.Fatalf("number %d of %d: has %v, want %v", number, next, got, want)
		}
		if !want {
			w.add(number)
			came[number], next = true, max(next, number+1)
		}
	}
}

// TestEarlyDataWaits: data that overtakes the end of the handshake is handed on afterwards, in order, and is bounded.
func TestEarlyDataWaits(t *testing.T) {
	for name, connection := range connectionIDs {
		t.Run(name, func(t *testing.T) { testEarlyDataWaits(t, connection) })
	}
}

func testEarlyDataWaits(t *testing.T, connection []byte) {
	up, seal, _ := gated(t, connection)
	g, came := &recordGate{form: up.form, secrets: up.secrets}, []string(nil)
	for i := range 2 * maxEarly {
		b := sealed(t, seal, dtlsData, strings.Repeat("x", i))
		if n, err := g.admit(make([]byte, 100), b, 0); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		clear(b) // the memory is the connection's
	}
	for range handshakeBytes / 500 { // more than a handshake takes, which ends nothing
		if n, err := g.admit(make([]byte, 100), g.form.whole(dtlsRecord(1, 7, strings.Repeat("x", 1000))), 0); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(g.early) != maxEarly || g.earlyBytes > earlyBytes {
		t.Errorf("%d records of %d bytes wait", len(g.early), g.earlyBytes)
	}
	g.openBy(up.open, func(packets []packetCame) {
		for _, p := range packets {
			came = append(came, string(p.data))
		}
	})
	for i, data := range came {
		if len(data) != i {
			t.Errorf("record %d has %d bytes", i, len(data))
		}
	}
	if len(came) != maxEarly || !g.settled.Load() || g.early != nil {
		t.Errorf("%d came, settled %v", len(came), g.settled.Load())
	}

	g = &recordGate{form: up.form, secrets: up.secrets}
	for range maxEarly {
		if n, err := g.admit(nil, sealed(t, seal, dtlsData, string(make([]byte, 2048-seal.overhead()))), 0); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	if g.earlyBytes != earlyBytes || len(g.early) != earlyBytes/2048 {
		t.Errorf("%d records of 2,048 bytes wait, %d bytes in all, want %d", len(g.early), g.earlyBytes, earlyBytes)
	}
}

// FuzzGate: whatever comes once a connection is up, nothing reaches pion but whole records of alerts with a key's
// epoch, and no data is handed on.
func FuzzGate(f *testing.F) {
	f.Add(append(dtlsRecord(1, 7, "data"), plaintext(21, 9, 1, 0)...), true, false)
	f.Add(plaintext(22, 1, handshakePiece(1, 30)...), false, false)
	form := recordForm{id: connectionIDs["with an id"]}
	f.Add(append(form.whole(dtlsRecord(1, 7, strings.Repeat("data", 10))), plaintext(21, 9, 1, 0)...), true, true)
	f.Add(form.whole(dtlsRecord(1, 7, ""))[:15], true, true)
	f.Fuzz(func(t *testing.T, b []byte, settled, carries bool) {
		var connection []byte
		if carries {
			connection = form.id
		}
		g, _, came := gated(t, connection)
		g.settled.Store(settled)
		p := make([]byte, 4096)
		n, err := g.admit(p, append([]byte(nil), b...), 0)
		g.handOn()
		if len(*came) > 0 {
			t.Fatalf("%q came", *came)
		}
		if n > len(b) || !settled {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for rest := p[:n]; len(rest) > 0; {
			if len(rest) < 13 || rest[3] == 0 && rest[4] == 0 || rest[0] != dtlsAlert {
				t.Fatalf("%x passes", rest)
			}
			rest = rest[13+int(binary.BigEndian.Uint16(rest[11:])):]
		}
	})
}

// TestRoomIsShared: Links of one site, however many, have one room, and promise no more than its part of memory, and
// the least that each needs; room that a Link leaves another Link gets.
func TestRoomIsShared(t *testing.T) {
	var sites dtlsTransport
	if tokyo := sites.room("tokyo"); tokyo != sites.room("tokyo") || tokyo == sites.room("virginia") {
		t.Error("not every site has one room of its own")
	}
	r := recordRoom{size: roomOf(512 << 20)}
	var links []int
	enter := func() int {
		n, err := r.enter()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	sum := func() (n int) {
		for _, l := range links {
			n += l
		}
		return n
	}
	for range maxLinks {
		links = append(links, enter())
	}
	if n := sum(); n > r.size+maxLinks*smallestWindow || n != r.used {
		t.Errorf("%d Links promise %d bytes, of which %d are noted", len(links), n, r.used)
	}
	if n, err := r.enter(); err == nil {
		t.Errorf("one Link more has %d bytes", n)
	}
	if links[0] != datagramWindow {
		t.Errorf("the first Link has %d bytes", links[0])
	}
	for i := 1; i < len(links); i++ {
		r.leave(links[i])
	}
	links = append(links[:1], enter())
	for range 10 {
		links[1] = r.more(links[1])
	}
	if links[1] != datagramWindow || sum() > r.size || sum() != r.used {
		t.Errorf("two Links have %d bytes, of which %d are noted", links, r.used)
	}
	third := enter()
	if third != smallestWindow || r.more(third) != third {
		t.Errorf("a third Link has %d bytes", third)
	}
	r.leave(links[0])
	if got := r.more(third); got != datagramWindow {
		t.Errorf("it has %d bytes where %d are free", got, r.size-links[1])
	}
}

// TestForgedDatagramsWakeNoReader: once a carrier is up, the accepting side drops impossible datagrams before its
// reader sees them: the reader's next datagram is the honest one behind them.
func TestForgedDatagramsWakeNoReader(t *testing.T) {
	ln, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	near, err := udp.Dial(ctx, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	g, seal, came := gatedOver(t, far.(*udp.Conn), near.ID())
	impossible := dtlsRecord(dataEpoch, maxAhead, string(make([]byte, 100)))
	forged := [][]byte{plaintext(dtlsAlert, 9, 1, 0), plaintext(dtlsHandshake, 9, make([]byte, 100)...), impossible, g.form.whole(impossible),
		dtlsRecord(dataEpoch, 1, string(make([]byte, 100)))}
	honest := sealed(t, seal, dtlsData, "honest")
	for _, d := range append(forged, honest) {
		if _, err := near.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	far.SetReadDeadline(time.Now().Add(time.Minute))
	d, mark, _, err := g.Next()
	if err != nil || string(d) != string(honest) {
		t.Fatalf("the reader was woken by %x, %v", d, err)
	}
	g.admit(make([]byte, len(d)), d, mark)
	g.handOn()
	if len(*came) != 1 || (*came)[0] != "honest" {
		t.Errorf("%q came of the honest datagram", *came)
	}
	const header = 20 + 8 // of IPv4 and UDP
	want := uint64(header + len(honest))
	for _, d := range forged {
		want += uint64(header + len(d))
	}
	if _, received := g.Network(); received != want {
		t.Errorf("%d bytes were counted of %d that came", received, want)
	}
}

// TestForgedRecordsAreFewDecrypted: of records with a number that the other end cannot have reached, or not any more,
// or that are otherwise impossible, none is decrypted, and none needs to leave the place where it arrives. One with a
// likely number is decrypted once, whatever it is.
func TestForgedRecordsAreFewDecrypted(t *testing.T) {
	for name, connection := range connectionIDs {
		t.Run(name, func(t *testing.T) { testForgedRecordsAreFewDecrypted(t, connection) })
	}
}

func testForgedRecordsAreFewDecrypted(t *testing.T, connection []byte) {
	g, seal, came := gated(t, connection)
	seal.next = 3 * maxAhead / 2 // a carrier that has been up for a while, of which the last records were lost
	g.open.next.Store(maxAhead)
	g.open.came.next = maxAhead
	p := make([]byte, 2000)
	give := func(kind byte, word uint64, n int) (worth bool, decrypted uint64) {
		b := plaintext(kind, 0, make([]byte, n)...)
		binary.BigEndian.PutUint64(b[epochAt:], word)
		b = g.form.whole(b)
		before := g.open.refused()
		worth = g.open.worth(b)
		if n, err := g.admit(p, b, 0); n != 0 || err != nil {
			t.Fatalf("%d bytes of a forged record pass, %v", n, err)
		}
		g.handOn()
		return worth, g.open.refused() - before
	}
	const epoch, now = dataEpoch << 48, maxAhead
	for _, kind := range []byte{dtlsData, dtlsAlert} {
		for name, forged := range map[string]struct {
			word  uint64
			bytes int
		}{
			"too old": {epoch | now - dtlsReplayWindow - 1, 1000}, "too new": {epoch | now + maxAhead, 1000}, "the largest": {epoch | 1<<48 - 1, 1000},
			"in clear": {now, 1000}, "next epoch": {2*epoch | now, 1000}, "no tag": {epoch | now, suiteTag - 1},
		} {
			if worth, n := give(kind, forged.word, forged.bytes); worth || n != 0 {
				t.Errorf("%s, kind %d: worth %v, and %d were decrypted", name, kind, worth, n)
			}
		}
		if worth, n := give(kind, epoch|now+5, 1000); !worth || n != 1 {
			t.Errorf("a likely record of kind %d: worth %v, and %d were decrypted", kind, worth, n)
		}
	}
	if worth, n := give(dtlsWithID, epoch|now+5, 1000); worth != (connection != nil) || n != 0 && connection == nil {
		t.Errorf("a likely record with an id: worth %v, and %d were decrypted", worth, n)
	}
	g.open.next.Store(maxSealed - 5)
	if worth, n := give(dtlsData, epoch|maxSealed, 1000); worth || n != 0 {
		t.Errorf("a number that no sealer gives: worth %v, and %d were decrypted", worth, n)
	}
	g.open.next.Store(maxAhead)
	b := sealed(t, seal, dtlsData, "honest")
	if worth := g.open.worth(b); !worth {
		t.Error("an honest record behind many that were lost is not worth a look")
	}
	g.admit(p, b, 0)
	g.handOn()
	if len(*came) != 1 || g.open.next.Load() != seal.next {
		t.Errorf("%q came, and the next number is %d, want %d", *came, g.open.next.Load(), seal.next)
	}
}
