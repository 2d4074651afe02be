package tunnel

import (
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"sync"
	"testing"
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
	to.SetDeadline(time.Now().Add(5 * time.Second))
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

// TestForgedDatagramsDoNothing: a sender that writes the addresses of a connection into datagrams, and knows no key, neither ends the
// connection nor has anything kept for it.
func TestForgedDatagramsDoNothing(t *testing.T) {
	for name, forged := range map[string]func(i uint64) []byte{
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
			below := client.holder.(*udp.Conn)
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

// heapNow returns the bytes that are held. It looks several times: on a busy machine much is allocated between a collection and the look at it.
func heapNow() int {
	least := math.MaxInt
	for range 4 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, int(m.HeapAlloc))
	}
	return least
}

// TestHalfOpenDatagramsAreBounded: an address that answers the cookie, and shows no certificate, has little kept for each of its
// handshakes, whatever it sends.
func TestHalfOpenDatagramsAreBounded(t *testing.T) {
	for name, piece := range map[string]func(i uint64) []byte{
		"empty messages":     func(i uint64) []byte { return plaintext(22, i, make([]byte, 12*90)...) },
		"pieces of messages": func(i uint64) []byte { return plaintext(22, i, handshakePiece(i+1, 1000)...) },
		"crumbs":             func(i uint64) []byte { return plaintext(22, i, handshakePiece(i+1, 1)...) },
		"later epochs":       func(i uint64) []byte { return dtlsRecord(1, i, string(make([]byte, 8000))) },
	} {
		t.Run(name, func(t *testing.T) {
			id := identities(t, "tokyo")
			server, err := newDTLSTransport(&Config{Identity: id("tokyo"), Now: time.Now})
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
			const conns = 8
			var pieces [3000][]byte
			for i := range pieces {
				pieces[i] = piece(uint64(i))
			}
			heap := heapNow()
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
						if _, err := conn.Write(b); err != nil {
							return
						}
					}
				})
			}
			most := 0
			for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				most = max(most, heapNow()-heap)
			}
			if most > conns*handshakeMemory {
				t.Errorf("%d bytes are held for each half-open handshake, over %d", most/conns, handshakeMemory)
			}
			t.Logf("%d bytes for each", most/conns)
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
			if n, err := g.admit(b); n != len(b) || err != nil {
				t.Fatalf("flight %d: %d of %d bytes, %v", i, n, len(b), err)
			}
		}
	}
}

// TestGateLetsRecordsPass: the gate removes records that may not pass, and leaves the rest as it is.
func TestGateLetsRecordsPass(t *testing.T) {
	data, alert := dtlsRecord(1, 7, "data"), dtlsRecord(1, 8, "alert")
	alert[0] = 21
	forged := plaintext(21, 9, 1, 0)
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, c := range map[string]struct{ in, want []byte }{
		"data":               {data, data},
		"two records":        {join(data, alert), join(data, alert)},
		"forged first":       {join(forged, data), data},
		"forged between":     {join(data, forged, alert), join(data, alert)},
		"forged last":        {join(data, forged), data},
		"cut off":            {join(data, alert[:len(alert)-1]), data},
		"a header cut off":   {join(data, alert[:12]), data},
		"nothing but forged": {forged, nil},
		"empty":              {nil, nil},
	} {
		g := &recordGate{}
		g.settled.Store(true)
		b := append([]byte(nil), c.in...)
		n, err := g.admit(b)
		if err != nil || string(b[:n]) != string(c.want) {
			t.Errorf("%s: %x, %v, want %x", name, b[:n], err, c.want)
		}
	}
}

// FuzzGate: whatever comes once a connection is up, nothing passes but whole records with a key's epoch, of data or alerts.
func FuzzGate(f *testing.F) {
	f.Add(append(dtlsRecord(1, 7, "data"), plaintext(21, 9, 1, 0)...), true)
	f.Add(plaintext(22, 1, handshakePiece(1, 30)...), false)
	f.Fuzz(func(t *testing.T, b []byte, settled bool) {
		g := &recordGate{}
		g.settled.Store(settled)
		n, err := g.admit(b)
		if n > len(b) || !settled {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for rest := b[:n]; len(rest) > 0; {
			if len(rest) < 13 || rest[3] == 0 && rest[4] == 0 || rest[0] != 21 && rest[0] != 23 {
				t.Fatalf("%x passes", rest)
			}
			rest = rest[13+int(binary.BigEndian.Uint16(rest[11:])):]
		}
	})
}

// TestRoomIsShared: Links of one site, however many, promise no more than its part of memory, and the least that each needs; room that a Link
// leaves another Link gets.
func TestRoomIsShared(t *testing.T) {
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
	if n := sum(); n > r.size+maxLinks*leastWindow || n != r.used {
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
	if third != leastWindow || r.more(third) != third {
		t.Errorf("a third Link has %d bytes", third)
	}
	r.leave(links[0])
	if got := r.more(third); got != datagramWindow {
		t.Errorf("it has %d bytes where %d are free", got, r.size-links[1])
	}
}
