package tunnel

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// puppetOf returns a site in clear and the far end of its only carrier, attached, with everything that may happen by
// itself (the first PING) over.
func puppetOf(t *testing.T, cfg Config) (*site, *puppet) {
	t.Helper()
	cfg.Name = "tokyo"
	s := (&fabric{delay: time.Millisecond}).site(t, cfg, insecure)
	p := connect(t, s.f, s, newIncarnation(), nil)
	h, _ := p.until(kindPing)
	p.say(header{kind: kindPong, value: h.value}, nil)
	time.Sleep(time.Second)
	return s, p
}

// GOAWAY, as often as it comes, stops openings and nothing else; openings that wait for a place fail too.
func TestGoAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		accepted := make(chan *Stream, 1)
		s, p := puppetOf(t, Config{Accept: func(_ string, _ []byte, in *Incoming) { accepted <- in.Accept() }})
		p.open(0, "")
		st := <-accepted
		session := s.list()[0].session()
		session.mu.Lock()
		session.openLimit = 0
		session.mu.Unlock()
		waits := make(chan error)
		go func() {
			_, err := s.Open(t.Context(), "puppet", nil)
			waits <- err
		}()
		synctest.Wait()
		for range 3 {
			p.say(header{kind: kindGoAway}, nil)
		}
		if err := <-waits; !errors.Is(err, ErrDraining) || !strings.HasSuffix(err.Error(), "draining: puppet") {
			t.Errorf("an opening that waits: %v", err)
		}
		if _, err := s.Open(t.Context(), "puppet", nil); !errors.Is(err, ErrDraining) {
			t.Errorf("another opening: %v", err)
		}
		if st := s.Stats()[0]; !st.Draining || st.Streams != 1 {
			t.Errorf("%+v", st)
		}
		p.open(1, "the other direction") // the peer takes none, but this side does
		(<-accepted).Reset(CodeApp)
		st.Write([]byte("goes on"))
		if h, _ := p.until(kindData); h.stream != p.id(0) {
			t.Errorf("DATA of stream %d", h.stream)
		}
		st.Reset(CodeApp)
	})
}

// A PING is answered on its own carrier, by its own value, behind the records that were sent before; any number of them
// that have come meanwhile by the last one.
func TestPingIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, p := puppetOf(t, Config{})
		q := connect(t, s.f, s, p.mine, func(h *hello) { h.place.slot = 1 })
		q.until(kindPing)
		for _, value := range []uint64{0, 1, 1<<64 - 1, maxOffset} {
			for _, c := range []*puppet{p, q} {
				c.say(header{kind: kindPing, value: value}, nil)
				if h, _ := c.until(kindPong); h != (header{kind: kindPong, value: value}) {
					t.Errorf("PING %d is answered by %+v", value, h)
				}
			}
		}
		var b []byte
		for i := range uint64(100) {
			b = record(b, header{kind: kindPing, value: i})
		}
		p.conn.Write(b)
		for n := 1; ; n++ {
			if h, _ := p.until(kindPong); h.value == 99 {
				break
			} else if n == 100 {
				t.Fatal("the last PING is not answered")
			}
		}
	})
}

// A PONG is believed only if it is the answer to the PING that is out: others neither measure nor confirm anything.
func TestPongMustFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := (&fabric{delay: time.Millisecond}).site(t, Config{Name: "tokyo"}, insecure)
		p := connect(t, s.f, s, newIncarnation(), nil)
		h, _ := p.until(kindPing)
		p.say(header{kind: kindPong, value: h.value + 1}, nil)
		time.Sleep(time.Second)
		if rtt := s.Stats()[0].RTT; rtt != 0 {
			t.Errorf("RTT %v of another PONG", rtt)
		}
		p.say(header{kind: kindPong, value: h.value}, nil)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		rtt := s.Stats()[0].RTT
		if rtt < time.Second {
			t.Errorf("RTT %v", rtt)
		}
		for range 2 * len(s.list()[0].session().rtts) { // none is out any more
			p.say(header{kind: kindPong, value: h.value}, nil)
		}
		time.Sleep(time.Second)
		if got := s.Stats()[0].RTT; got != rtt {
			t.Errorf("RTT %v after %v, by the same PONG again", got, rtt)
		}
	})
}

// END says why the peer gives up, on one line whatever it is made of.
func TestEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		accepted := make(chan *Stream, 1)
		_, p := puppetOf(t, Config{Accept: func(_ string, _ []byte, in *Incoming) { accepted <- in.Accept() }})
		p.open(0, "")
		st := <-accepted
		p.say(header{kind: kindEnd}, []byte("good\nbye\x00\xff"))
		<-st.Done()
		if err := st.Err(); !errors.Is(err, ErrSessionLost) || !strings.Contains(err.Error(), `puppet: ended by the peer: "good\nbye\x00\xff"`) {
			t.Error(err)
		}
	})
}

// Another record in the place of HELLO or READY ends the carrier and nothing else; the error names the record.
func TestHandshakeOutOfOrder(t *testing.T) {
	mine := incarnation{7}
	good := (&hello{min: 1, max: 1, name: "puppet", mine: mine, maxBody: maxBody, streams: 1, window: minWindow}).append(nil)
	stranger := (&hello{min: 1, max: 1, name: "str\nanger", mine: mine, maxBody: maxBody, streams: 1, window: minWindow}).append(nil)
	hello := func(body []byte) []byte { return record(nil, header{kind: kindHello}, body...) }
	for _, c := range []struct {
		name, want string
		say        []byte
	}{
		{"nothing", "carrier from 127.0.0.1:7443: waiting for the first byte: EOF", nil},
		{"half a header", "waiting for HELLO from 127.0.0.1:7443: unexpected EOF", make([]byte, headerLen-1)},
		{"half a HELLO", "waiting for HELLO from 127.0.0.1:7443: unexpected EOF", hello(good)[:headerLen+9]},
		{"READY first", "READY record where HELLO is due", record(nil, header{kind: kindReady}, mine[:]...)},
		{"DATA first", "DATA record of 1 bytes, not 0 to 0", record(nil, header{kind: kindData, stream: 1}, 1)},
		{"PING first", "PING record where HELLO is due", record(nil, header{kind: kindPing})},
		{"END first", `refused by the peer: "n\no"`, record(nil, header{kind: kindEnd}, []byte("n\no")...)},
		{"not a HELLO", "does not begin with", hello([]byte("GET / HTTP/1.1\r\n\r\n"))},
		{"unknown name", `no peer "str\nanger" is configured`, hello(stranger)},
		{"HELLO twice", "HELLO record where READY is due", append(hello(good), hello(good)...)},
		{"PING before READY", "PING record where READY is due", record(hello(good), header{kind: kindPing})},
		{"END for READY", `refused by the peer: ""`, record(hello(good), header{kind: kindEnd})},
		{"no READY", "waiting for READY from 127.0.0.1:7443: EOF", hello(good)},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var said faults
				f := &fabric{delay: time.Millisecond}
				s := f.site(t, Config{Name: "tokyo", Events: Events{CarrierFailed: said.add}}, insecure)
				conn, err := f.dial(t.Context(), "tcp", "tokyo:1")
				if err != nil {
					t.Fatal(err)
				}
				conn.Write(c.say)
				conn.(*fabricConn).CloseWrite()
				time.Sleep(time.Second)
				said.have(t, "tokyo", c.want)
				if st := s.Stats()[0]; st.Session || st.Carriers != 0 {
					t.Errorf("%+v", st)
				}
				conn.Close()
			})
		})
	}
}

// A site that reaches itself says so, rather than to open every stream twice.
func TestDialsItself(t *testing.T) {
	s := newPeer(&newEndpoint(Config{}).home, Peer{Name: "paris"}).sess
	if err := s.establish(&hello{mine: s.mine}); err == nil || !strings.Contains(err.Error(), "it dialed itself") || s.known() != (incarnation{}) {
		t.Errorf("err %v", err)
	}
}

// An answer cut anywhere, too long, or of any code is taken as it is, and nothing hangs.
func TestAnswers(t *testing.T) {
	answer := func(code uint32, length int, text string) []byte {
		b := binary.BigEndian.AppendUint32(nil, code)
		return append(binary.BigEndian.AppendUint16(b, uint16(length)), text...)
	}
	for _, c := range []struct {
		name, want string
		b          []byte
	}{
		{"yes", "", answer(0, 0, "")},
		{"yes, and why", "", answer(0, 2, "ok")},
		{"no", "refused the stream: code 256", answer(256, 0, "")},
		{"no, and why", "refused the stream: draining: later", answer(uint32(CodeDraining), 5, "later")},
		{"the last code", "refused the stream: code 4294967295", answer(1<<32-1, 0, "")},
		{"the longest text", "refused the stream", answer(1, maxText, strings.Repeat("x", maxText))},
		{"a longer text", "with a text of 1025 bytes", answer(1, maxText+1, strings.Repeat("x", maxText+1))},
		{"nothing", "no answer to the opening: EOF", nil},
		{"half a code", "no answer to the opening: unexpected EOF", answer(1, 0, "")[:3]},
		{"half a text", "answer to the opening cut short: unexpected EOF", answer(1, 5, "four")},
		{"no text", "answer to the opening cut short: EOF", answer(1, 5, "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, p := puppetOf(t, Config{})
				type result struct {
					st  *Stream
					err error
				}
				opened := make(chan result)
				go func() {
					st, err := s.Open(t.Context(), "puppet", []byte("please"))
					opened <- result{st, err}
				}()
				h, body := p.until(kindData)
				if string(body) != "\x00\x06please" {
					t.Errorf("the opening is %q", body)
				}
				for i := range c.b { // byte by byte
					p.say(header{kind: kindData, stream: h.stream, value: uint64(i)}, c.b[i:i+1])
				}
				p.say(header{kind: kindData, flags: flagFin, stream: h.stream, value: uint64(len(c.b))}, nil)
				r := <-opened
				if c.want == "" && r.err != nil || c.want != "" && (r.err == nil || !strings.Contains(r.err.Error(), c.want)) {
					t.Errorf("%v, nothing of %q", r.err, c.want)
				}
				var no *RefusedError
				if refused := strings.Contains(c.want, "refused"); refused != errors.As(r.err, &no) {
					t.Errorf("%v, a *RefusedError: %v", r.err, !refused)
				}
				if r.st != nil {
					if sent, received := r.st.counts(); sent != 0 || received != 0 {
						t.Errorf("%d sent, %d received beside the opening", sent, received)
					}
					r.st.Reset(CodeApp)
				}
			})
		})
	}
}
