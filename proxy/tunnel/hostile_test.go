package tunnel

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A puppet is the far end of a carrier in clear, which sends the records that a test wants.
type puppet struct {
	t    testing.TB
	conn net.Conn
	mine incarnation
	hers *hello
}

// insecure makes a site in clear, so that a puppet can be its peer.
func insecure(c *Config) {
	c.Insecure = true
	c.Identity = Identity{}
	c.Peers = []Peer{{Name: "puppet"}}
}

// connect dials the site in clear and says hello as change wants; it returns at READY.
func connect(t testing.TB, f *fabric, s *site, mine incarnation, change func(*hello)) *puppet {
	t.Helper()
	conn, err := f.dial(t.Context(), "tcp", s.cfg.Name+":1")
	if err != nil {
		t.Fatal(err)
	}
	return greet(t, conn, mine, change)
}

// greet says hello on conn as change wants; it returns at READY.
func greet(t testing.TB, conn net.Conn, mine incarnation, change func(*hello)) *puppet {
	t.Helper()
	p := &puppet{t: t, conn: conn, mine: mine}
	h := &hello{min: 1, max: 1, name: "puppet", mine: mine, maxBody: maxBody, streams: 100, window: 256 << 10}
	h.place.generation = 1
	if change != nil {
		change(h)
	}
	p.say(header{kind: kindHello}, h.append(nil))
	head, body := p.hear()
	if head.kind != kindHello {
		t.Fatalf("%v %q instead of HELLO", head.kind, body)
	}
	var err error
	if p.hers, err = parseHello(body); err != nil {
		t.Fatal(err)
	}
	if head, body := p.hear(); head.kind != kindReady || incarnation(body) != mine {
		t.Fatalf("%v %x instead of READY %x", head.kind, body, mine)
	}
	p.say(header{kind: kindReady}, p.hers.mine[:])
	return p
}

// say sends a record; its length is that of body.
func (p *puppet) say(h header, body []byte) {
	h.length = len(body)
	p.conn.Write(append(h.append(nil), body...))
}

// hear returns the next record; kind 0: there are no more.
func (p *puppet) hear() (header, []byte) {
	p.t.Helper()
	var head [headerLen]byte
	if _, err := io.ReadFull(p.conn, head[:]); err != nil {
		return header{}, nil
	}
	h, err := parseHeader(&head, maxBody)
	if err != nil {
		p.t.Fatalf("the site broke the protocol: %v", err)
	}
	body := make([]byte, h.length)
	if _, err := io.ReadFull(p.conn, body); err != nil {
		p.t.Fatal(err)
	}
	return h, body
}

// until skips records up to one of that kind.
func (p *puppet) until(k kind) (header, []byte) {
	p.t.Helper()
	for {
		h, body := p.hear()
		if h.kind == k {
			return h, body
		}
		if h.kind == 0 {
			p.t.Fatalf("the carrier ended before %v", k)
		}
	}
}

// id returns the n-th stream that the puppet may open.
func (p *puppet) id(n uint64) uint64 {
	return streamID(n, string(p.mine[:]) < string(p.hers.mine[:]))
}

// hersID returns the n-th stream that the site may open.
func (p *puppet) hersID(n uint64) uint64 {
	return streamID(n, string(p.mine[:]) > string(p.hers.mine[:]))
}

func (p *puppet) open(n uint64, opening string) {
	p.say(header{kind: kindData, stream: p.id(n)}, append([]byte{0, byte(len(opening))}, opening...))
}

func limit(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// A record that breaks the protocol ends the session with a reason, and its streams with it.
func TestProtocolErrors(t *testing.T) {
	for _, c := range []struct {
		name, want string
		do         func(p *puppet)
	}{
		{"beyond credit", "credit", func(p *puppet) {
			p.say(header{kind: kindData, stream: p.id(0), value: 256<<10 - 10}, make([]byte, 20))
		}},
		{"credit overflows", "credit", func(p *puppet) {
			p.say(header{kind: kindData, stream: p.id(0), value: maxOffset - 1}, make([]byte, 20))
		}},
		{"after FIN", "ended at 6", func(p *puppet) {
			p.say(header{kind: kindData, flags: flagFin, stream: p.id(0), value: 2}, []byte("data"))
			p.say(header{kind: kindData, stream: p.id(0), value: 6}, []byte("more"))
		}},
		{"FIN before its data", "after DATA up to 104", func(p *puppet) {
			p.say(header{kind: kindData, stream: p.id(0), value: 100}, []byte("data"))
			p.say(header{kind: kindData, flags: flagFin, stream: p.id(0), value: 50}, nil)
		}},
		{"two ends", "ended at 2", func(p *puppet) {
			p.say(header{kind: kindData, flags: flagFin, stream: p.id(0), value: 2}, nil)
			p.say(header{kind: kindData, flags: flagFin, stream: p.id(0), value: 3}, nil)
		}},
		{"overlap", "overlaps", func(p *puppet) {
			p.say(header{kind: kindData, stream: p.id(0), value: 2}, []byte("data"))
			p.say(header{kind: kindData, stream: p.id(0), value: 4}, []byte("more"))
		}},
		{"overlap beyond a gap", "overlaps", func(p *puppet) {
			p.say(header{kind: kindData, stream: p.id(0), value: 20}, []byte("data"))
			p.say(header{kind: kindData, stream: p.id(0), value: 18}, []byte("more"))
		}},
		{"overlap found when the gap closes", "overlaps", func(p *puppet) {
			p.say(header{kind: kindData, stream: p.id(0), value: 20}, []byte("data"))
			p.say(header{kind: kindData, stream: p.id(0), value: 2}, make([]byte, 19))
		}},
		{"too many crumbs beyond a gap", "records of less than", func(p *puppet) {
			for i := range uint64(maxTiny + 1) {
				p.say(header{kind: kindData, stream: p.id(0), value: 10 + 2*i}, []byte{1})
			}
		}},
		{"stream beyond the limit", "number 11 where 10 are allowed", func(p *puppet) { p.open(10, "") }},
		{"stream of the other side", "never opened", func(p *puppet) {
			p.say(header{kind: kindData, stream: p.hersID(7)}, []byte{0, 0})
		}},
		{"reset of a stream never opened", "never opened", func(p *puppet) {
			p.say(header{kind: kindReset, stream: p.hersID(7)}, make([]byte, 4))
		}},
		{"done with a stream never opened", "never opened", func(p *puppet) { p.say(header{kind: kindDone, stream: p.hersID(7)}, nil) }},
		{"done with a stream that goes on", "has not ended", func(p *puppet) { p.say(header{kind: kindDone, stream: p.id(0)}, nil) }},
		{"reset before its data", "after DATA up to 2", func(p *puppet) {
			p.say(header{kind: kindReset, stream: p.id(0), value: 1}, make([]byte, 4))
		}},
		{"reset elsewhere than FIN", "after FIN at 10", func(p *puppet) {
			p.say(header{kind: kindData, flags: flagFin, stream: p.id(0), value: 10}, nil)
			p.say(header{kind: kindReset, stream: p.id(0), value: 12}, make([]byte, 4))
		}},
		{"asks for ever about a stream that is over", "records for streams that are over", func(p *puppet) {
			var b []byte
			for range 20_000 {
				b = record(b, header{kind: kindReset, stream: p.id(1)}, 0, 0, 0, 1)
			}
			p.conn.Write(b)
		}},
		{"acknowledges what never left", "of which", func(p *puppet) {
			p.say(header{kind: kindWindow, stream: p.id(0), value: 1000}, limit(1000))
		}},
		{"long opening", "opening of 5000 bytes", func(p *puppet) {
			p.say(header{kind: kindData, stream: p.id(1)}, []byte{5000 >> 8, 5000 & 0xff})
		}},
		{"end within the opening", "within its opening", func(p *puppet) {
			p.say(header{kind: kindData, flags: flagFin, stream: p.id(1)}, []byte{0, 9, 1})
		}},
		{"unknown kind", "kind 99", func(p *puppet) { p.say(header{kind: 99}, nil) }},
		{"unknown flag", "unknown flags", func(p *puppet) { p.say(header{kind: kindData, flags: 2, stream: p.id(0), value: 2}, []byte("x")) }},
		{"empty DATA", "empty DATA", func(p *puppet) { p.say(header{kind: kindData, stream: p.id(0), value: 2}, nil) }},
		{"long DATA", "bytes, not 0 to", func(p *puppet) {
			p.conn.Write(header{kind: kindData, stream: p.id(0), value: 2, length: maxBody + 1}.append(nil))
		}},
		{"PING with a body", "PING record of 1 bytes", func(p *puppet) { p.say(header{kind: kindPing}, []byte{1}) }},
		{"second HELLO", "on an attached carrier", func(p *puppet) { p.say(header{kind: kindReady}, make([]byte, 16)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &fabric{delay: time.Millisecond}
				accepted := make(chan *Stream, 20)
				s := f.site(t, Config{Name: "tokyo", Streams: 10, Accept: func(_ string, _ []byte, in *Incoming) { accepted <- in.Accept() }}, insecure)
				p := connect(t, f, s, newIncarnation(), nil)
				p.open(0, "")
				st := <-accepted
				c.do(p)
				_, body := p.until(kindEnd)
				if !strings.Contains(string(body), c.want) {
					t.Errorf("END says %q, nothing of %q", body, c.want)
				}
				if _, err := st.Write([]byte("x")); !errors.Is(err, ErrSessionLost) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("the stream: %v", err)
				}
				p.conn.Close()
				st.Close()
				time.Sleep(2 * endWithin)
				if n := s.mem.used.Load(); n != 0 {
					t.Errorf("%d bytes in buffers are left", n)
				}
			})
		})
	}
}

// A stream that is over stays over, whatever is sent again.
func TestReplayOpensNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		opened := 0
		s := f.site(t, Config{Name: "tokyo", Streams: 10, Accept: func(_ string, _ []byte, in *Incoming) {
			opened++
			in.Refuse(CodeApp, "")
		}}, insecure)
		p := connect(t, f, s, newIncarnation(), nil)
		for n := range uint64(25) { // more than the limit: it grows as streams end
			id := p.id(n)
			record := header{kind: kindData, flags: flagFin, stream: id}
			p.say(record, []byte{0, 1, 'x'})
			p.until(kindData) // the answer, and FIN
			p.say(header{kind: kindWindow, stream: id, value: 7}, limit(100))
			p.until(kindDone)
			for _, again := range []header{record, {kind: kindData, stream: id, value: 1}} {
				p.say(again, []byte{0, 1, 'x'})
				if h, _ := p.until(kindDone); h.stream != id {
					t.Fatalf("DONE for %d, not %d", h.stream, id)
				}
			}
			p.say(header{kind: kindReset, stream: id}, make([]byte, 4))
			if h, _ := p.until(kindDone); h.stream != id {
				t.Fatalf("DONE for %d, not %d", h.stream, id)
			}
		}
		// A RESET that is faster than its DATA.
		p.say(header{kind: kindReset, stream: p.id(25)}, make([]byte, 4))
		p.until(kindDone)
		p.open(25, "late")
		p.until(kindDone)
		if st := s.Stats()[0]; opened != 25 || st.Streams != 0 || st.Sessions != 1 {
			t.Errorf("%d opened, %+v", opened, st)
		}
	})
}

// Streams that were given the credit do not have to be read in order, or from one carrier.
func TestRecordsInAnyOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		accepted := make(chan *Stream, 20)
		s := f.site(t, Config{Name: "tokyo", Accept: func(_ string, _ []byte, in *Incoming) { accepted <- in.Accept() }}, insecure)
		p := connect(t, f, s, newIncarnation(), nil)
		q := connect(t, f, s, p.mine, func(h *hello) { h.place.slot = 1 })
		want := noise(1, 200<<10)
		bytes := append([]byte{0, 0}, want...)
		var parts [][2]int
		for off := 0; off < len(bytes); off += 3001 {
			parts = append(parts, [2]int{off, min(off+3001, len(bytes))})
		}
		for i := range parts {
			part := parts[(i*37+5)%len(parts)] // 67 parts, a prime
			h := header{kind: kindData, stream: p.id(0), value: uint64(part[0])}
			if part[1] == len(bytes) {
				h.flags = flagFin
			}
			for range 1 + i%2 { // every other one twice
				[]*puppet{p, q}[i%2].say(h, bytes[part[0]:part[1]])
			}
			time.Sleep(time.Millisecond)
		}
		got, err := io.ReadAll(<-accepted)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the parts", got, want)
	})
}

// A peer of a later version, which says more in its HELLO, is understood; one that has no version in common is
// told so.
func TestVersions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		accepted := make(chan *Stream, 1)
		var failed []error
		s := f.site(t, Config{Name: "tokyo", Codecs: []string{"lossless", "3lc"},
			Accept: func(_ string, _ []byte, in *Incoming) { accepted <- in.Accept() },
			Events: Events{CarrierFailed: func(_ string, err error) { failed = append(failed, err) }},
		}, insecure)

		conn, err := f.dial(t.Context(), "tcp", "tokyo:1")
		if err != nil {
			t.Fatal(err)
		}
		p := &puppet{t: t, conn: conn}
		old := &hello{min: 7, max: 9, name: "puppet", mine: newIncarnation(), maxBody: maxBody, streams: 1, window: 1 << 20}
		p.say(header{kind: kindHello}, old.append(nil))
		if h, body := p.hear(); h.kind != kindEnd || !strings.Contains(string(body), "speaks tunnel versions 7 to 9, this side 1 to 1") {
			t.Errorf("%v %q", h.kind, body)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(failed) != 1 || !strings.Contains(failed[0].Error(), "upgrade") {
			t.Errorf("failed: %v", failed)
		}
		conn.Close()

		later := &hello{min: 1, max: 3, name: "puppet", mine: newIncarnation(), maxBody: 1 << 20, streams: 1, window: 1 << 20, codecs: []string{"zfp"}}
		body := later.append(nil)
		body = append(body, 0, 200, 0, 3, 'n', 'e', 'w')                                 // a field that is not known
		body = append(body, 0, fieldCodec, 0, 8, 's', 'p', 'a', 'r', 's', 'e', '(', ')') // and another of one that is
		if conn, err = f.dial(t.Context(), "tcp", "tokyo:1"); err != nil {
			t.Fatal(err)
		}
		p = &puppet{t: t, conn: conn, mine: later.mine}
		p.say(header{kind: kindHello}, body)
		h, body := p.hear()
		if h.kind != kindHello {
			t.Fatalf("%v %q", h.kind, body)
		}
		if p.hers, err = parseHello(body); err != nil || strings.Join(p.hers.codecs, " ") != "lossless 3lc" {
			t.Fatalf("%+v, %v", p.hers, err)
		}
		p.until(kindReady)
		p.say(header{kind: kindReady}, p.hers.mine[:])
		p.open(0, "")
		st := <-accepted
		go st.Write(noise(1, 500<<10))
		if h, _ := p.until(kindData); h.length > maxBody {
			t.Errorf("DATA of %d bytes", h.length)
		}
		if got := s.Stats()[0].Codecs; strings.Join(got, " ") != "zfp sparse()" {
			t.Errorf("codecs %q", got)
		}
		st.Reset(CodeApp)
	})
}

// A carrier that says nothing, in TLS or after it, is ended, and stands in nobody's way.
func TestHalfOpenHandshakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		f.setDown(true)
		paris, tokyo := f.pair(t, echo, nil)
		f.setDown(false)
		var silent []net.Conn
		for range 1000 {
			c, err := f.dial(t.Context(), "tcp", "tokyo:1")
			if err != nil {
				t.Fatal(err)
			}
			silent = append(silent, c)
		}
		time.Sleep(backoffFrom + 10*time.Millisecond)
		if st := paris.Stats()[0]; st.Carriers != 2 {
			t.Errorf("an honest peer does not get in: %+v", st)
		}
		tokyo.halfOpen.mu.Lock()
		n := tokyo.halfOpen.groups[waits].n + tokyo.halfOpen.groups[underWay].n
		tokyo.halfOpen.mu.Unlock()
		if n > maxHalfOpenSource || n < maxHalfOpenSource/2 {
			t.Errorf("%d handshakes of one source are under way, want %d at most and half of them at least", n, maxHalfOpenSource)
		}
		time.Sleep(handshakeWithin)
		for _, c := range silent {
			if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
				t.Fatal("a silent carrier was not ended")
			}
			c.Close()
		}
	})
}

// A peer that brings one carrier after another and lets none of them go is held to a number.
func TestCarriersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		s := f.site(t, Config{Name: "tokyo"}, insecure)
		mine := newIncarnation()
		for i := range 100 {
			connect(t, f, s, mine, func(h *hello) { h.place.generation = uint64(i + 1) })
		}
		time.Sleep(time.Second)
		if n := s.Stats()[0].Carriers; n > 2*maxSlots || n < 2 {
			t.Errorf("%d carriers", n)
		}
	})
}
