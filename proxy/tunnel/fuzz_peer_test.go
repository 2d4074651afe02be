package tunnel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"unicode/utf8"
)

// Any bytes are an answer that says yes, or no in one line, or an error; none waits for more once the direction has
// ended.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 'x'})
	f.Add([]byte("\x00\x00\x01\x00\x00\x05no\nw\xff"))
	f.Add([]byte{0, 0, 0, 1, 4, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 8<<10 {
			return
		}
		s, c := attached(t, Config{Name: "tokyo"})
		st := own(t, s, c, 0, 0, false)
		s.mu.Lock()
		h := header{kind: kindData, flags: flagFin, stream: st.id, length: len(b)}
		to, err := s.incoming(h)
		if err == nil {
			err = s.takeSmall(to, h, b)
		}
		s.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		err = st.negotiate(nil)
		var no *RefusedError
		switch {
		case err == nil:
			if _, received := st.counts(); received != 0 {
				t.Errorf("%d bytes are said to be read", received)
			}
			rest, err := io.ReadAll(st)
			if err != nil || !bytes.HasSuffix(b, rest) || !bytes.HasPrefix(b, make([]byte, 4)) {
				t.Errorf("%x is yes, and then %x, %v", b, rest, err)
			}
		case errors.As(err, &no):
			if no.Code == 0 || !utf8.ValidString(no.Text) || strings.ContainsAny(no.Text, "\r\n\x1b\u2028") || len(no.Text) > 3*maxText {
				t.Errorf("%d %q", no.Code, no.Text)
			}
		case strings.Contains(err.Error(), "\n"):
			t.Errorf("more than one line: %q", err)
		}
		st.Reset(CodeApp)
		s.fail(errors.New("the test is over"), "")
		if n := s.mem.used.Load(); n != 0 {
			t.Errorf("%d bytes in buffers are left", n)
		}
	})
}

// A whisper is a connection on loopback that brings given bytes and takes any.
type whisper struct {
	feed
	nowhere
	wrote *bytes.Buffer
}

func (w whisper) Read(p []byte) (int, error)  { return w.feed.Read(p) }
func (w whisper) Write(p []byte) (int, error) { return w.wrote.Write(p) }
func (whisper) LocalAddr() net.Addr           { return fabricAddr }

// Whoever calls, with whatever bytes, is not let in without the READY that names the incarnation that it has just been
// told, which no recording can; and it is told nothing but a HELLO and a READY, or one END.
func FuzzHandshake(f *testing.F) {
	good := goodHello()
	good.name = "puppet"
	hello := record(nil, header{kind: kindHello}, good.append(nil)...)
	f.Add(hello)
	f.Add(record(hello, header{kind: kindReady}, make([]byte, 16)...))
	f.Add(record(nil, header{kind: kindEnd}, []byte("no\n")...))
	f.Add(record(nil, header{kind: kindHello}, []byte("GET / HTTP/1.1\r\n\r\n")...))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := newEndpoint(Config{Name: "tokyo", Insecure: true, Memory: 1 << 30})
		e.transport, _ = newTLSTransport(&e.cfg) // in clear it cannot fail
		p := newPeer(&e.home, Peer{Name: "puppet"})
		e.peers = []*peer{p}
		conn := whisper{feed{bytes.NewReader(b)}, nowhere{}, new(bytes.Buffer)}
		_, err := e.answer(t.Context(), conn)
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Fatalf("err %q", err)
		}
		if p.session().known() != (incarnation{}) {
			t.Error("a session came up")
		}
		var said []kind
		for out := conn.wrote.Bytes(); len(out) > 0; {
			h, err := parseHeader((*[headerLen]byte)(out), 0)
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, h.kind)
			out = out[headerLen+h.length:]
		}
		switch {
		case len(said) == 0, len(said) == 1 && said[0] == kindEnd, len(said) == 2 && said[0] == kindHello && said[1] == kindReady:
		default:
			t.Errorf("%v was said", said)
		}
	})
}
