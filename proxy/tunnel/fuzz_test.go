package tunnel

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// Any 20 bytes are a record that fits its kind, and is written as it was read, or an error.
func FuzzRecord(f *testing.F) {
	for k := kind(0); k < 13; k++ {
		f.Add(header{kind: k, length: 8, stream: 1, value: 2}.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerLen {
			return
		}
		h, err := parseHeader((*[headerLen]byte)(b), maxBody)
		if err != nil {
			return
		}
		if h.length > maxBody || h.kind != kindData && h.length > maxHello {
			t.Fatalf("%v record of %d bytes", h.kind, h.length)
		}
		if again := h.append(nil); !bytes.Equal(again, b[:headerLen]) {
			t.Fatalf("%x was read, %x is written", b[:headerLen], again)
		}
	})
}

// Any bytes that begin like a short header are one that fits its kind, and means the same when it is written and read
// again, or an error.
func FuzzShort(f *testing.F) {
	for _, h := range shortHeaders {
		f.Add(h.appendShort(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > maxAnyHeader {
			return
		}
		b[0] = shortMark | b[0]&^maxShort | byte(len(b)-1)
		h, err := parseShort(b, maxBody)
		if err != nil {
			return
		}
		if h.length > maxBody || h.kind != kindData && h.length > 0 || h.stream == 0 || h.stream > maxStream {
			t.Fatalf("%v record of %d bytes for stream %d", h.kind, h.length, h.stream)
		}
		again := h.appendShort(nil)
		if got, err := parseShort(again, maxBody); err != nil || got != h || len(again) > len(b) {
			t.Fatalf("%x is %+v, which is written as %x and read as %+v, %v", b, h, again, got, err)
		}
		if n := shortRecord(again); n != len(again)+h.length {
			t.Fatalf("%x begins a record of %d bytes, not %d", again, n, len(again)+h.length)
		}
	})
}

// Any bytes are a HELLO within its limits, which is the same when written and read again, or an error.
func FuzzHello(f *testing.F) {
	h := &hello{min: 1, max: 2, name: "paris", mine: incarnation{1}, yours: incarnation{2}, maxBody: maxBody, streams: 5, window: 1 << 18,
		codecs: []string{"lossless", "3lc(s=1.75)"}, place: place{slot: 3, replace: true, generation: 9}}
	f.Add(h.append(nil))
	f.Add([]byte(helloMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		if len(h.codecs) > maxCodecs || len(h.name) > maxName || h.maxBody < minMaxBody || h.window < minWindow || h.streams < 1 || h.place.slot >= maxSlots {
			t.Fatalf("%+v", h)
		}
		body := h.append(nil)
		if len(body) > maxHello {
			t.Fatalf("a HELLO of %d bytes", len(body))
		}
		again, err := parseHello(body)
		if err != nil || !bytes.Equal(again.append(nil), body) {
			t.Fatalf("%+v is read again as %+v, %v", h, again, err)
		}
	})
}

// feed is a carrier's connection that brings given bytes and takes any.
type feed struct{ io.Reader }

func (feed) Write(p []byte) (int, error) { return len(p), nil }

// nowhere is the connection beneath it.
type nowhere struct{ net.Conn }

func (nowhere) Close() error                     { return nil }
func (nowhere) RemoteAddr() net.Addr             { return fabricAddr }
func (nowhere) SetDeadline(time.Time) error      { return nil }
func (nowhere) SetWriteDeadline(time.Time) error { return nil }

// A deafConn is a connection that brings given bytes and takes any.
type deafConn struct {
	feed
	nowhere
}

func (c deafConn) Read(p []byte) (int, error)  { return c.feed.Read(p) }
func (c deafConn) Write(p []byte) (int, error) { return c.feed.Write(p) }

// deaf returns a Link that brings the bytes of r and takes any.
func deaf(r io.Reader) Link {
	return &tlsLink{bufferedConn: bufferedConn{Conn: deafConn{feed{r}, nowhere{}}}}
}

// script turns fuzzed bytes into records, some with short headers. Most records fit the session; bytes that are no
// record go in raw.
func script(b []byte) []byte {
	var out []byte
	for len(b) >= 6 {
		h := header{kind: kind(b[0] % 13), flags: b[1] & 1, stream: uint64(b[2] % 8), value: uint64(binary.BigEndian.Uint16(b[3:]))}
		n := int(b[5])
		b = b[6:]
		switch h.kind {
		case kindData:
			if n >= 240 { // large bodies, which take the other path
				n *= 300
			}
		case kindWindow:
			n = 8
		case kindReset:
			n = 4
		case 0: // raw
			n = min(n, len(b))
			out = append(out, b[:n]...)
			b = b[n:]
			continue
		default:
			n = 0
		}
		if h.kind != kindData && h.kind != kindReset {
			h.flags = 0
		}
		body := make([]byte, n)
		copy(body, b)
		if h.kind == kindWindow {
			h.value %= 64
		}
		h.length = n
		switch {
		case h.stream&4 != 0 && h.kind == kindWindow:
			h.stream, h.credit = h.stream&3, binary.BigEndian.Uint64(body)
			out = h.appendShort(out)
		case h.stream&4 != 0 && (h.kind == kindData || h.kind == kindDone):
			h.stream &= 3
			out = append(h.appendShort(out), body...)
		default:
			out = append(h.append(out), body...)
		}
	}
	return append(out, b...)
}

// Whatever records come, nothing panics, no more memory is taken than they justify, and all of it is given
// back.
func FuzzSession(f *testing.F) {
	f.Add([]byte{4, 0, 1, 0, 0, 2, 4, 1, 1, 0, 2, 9, 6, 0, 1, 0, 11, 0})
	f.Add([]byte{4, 0, 2, 0, 0, 2, 4, 0, 2, 0, 9, 255, 4, 0, 2, 0, 2, 7, 7, 0, 2, 0, 0, 0, 8, 0, 0, 0, 1, 0})
	for stream := byte(5); stream < 7; stream++ { // with short headers: an opening, its end, a WINDOW for it, and an end that comes alone
		f.Add([]byte{4, 0, stream, 0, 0, 2, 0, 0, 0, 0, 0, 0, 4, 1, stream, 0, 2, 9, 5, 0, stream, 0, 0, 0, 7, 0, stream, 0, 0, 0, 4, 1, stream ^ 2, 0, 9, 0})
	}
	f.Add([]byte{5, 0, 2, 0, 6, 0, 5, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<12 {
			return
		}
		input := script(b)
		e := newEndpoint(Config{Name: "tokyo", Streams: 4, Memory: 1 << 30, Accept: func(_ string, opening []byte, in *Incoming) {
			s := in.Accept()
			defer s.Reset(CodeApp)
			s.Write(opening)
			io.Copy(s, s)
		}})
		p := newPeer(&e.home, Peer{Name: "puppet"})
		s := p.sess
		if err := s.establish(&hello{mine: newIncarnation(), maxBody: maxBody, streams: 4, window: 64 << 10, short: true}); err != nil {
			t.Fatal(err)
		}
		c := &carrier{link: deaf(bytes.NewReader(input)), born: time.Now()}
		if !s.attach(c) {
			t.Fatal("not attached")
		}
		s.mu.Lock()
		s.opened++
		own := &Stream{stream: s.newStream(streamID(0, s.even)), session: s}
		s.mu.Unlock()
		own.Write([]byte("own"))
		err := p.follow(s, c)
		s.mu.Lock()
		for s.next(c) {
			s.release(c)
		}
		used := e.mem.used.Load()
		s.mu.Unlock()
		if limit := int64(2*len(input) + 1024*len(input)/5 + 64<<10); used > limit { // a DATA record has at least five bytes, or four at a stream's end
			t.Errorf("%d bytes in buffers after %d bytes of records", used, len(input))
		}
		p.fail(s, err, "")
		own.Close()
		for began := time.Now(); e.mem.used.Load() != 0; runtime.Gosched() { // the goroutines of Accept end too
			if time.Since(began) > time.Minute {
				t.Fatalf("%d bytes in buffers are left", e.mem.used.Load())
			}
		}
	})
}
