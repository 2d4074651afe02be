package tunnel

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/datagram"
)

// shortHeaders has a header of each form, with the smallest numbers and with the largest.
var shortHeaders = []header{
	{kind: kindData, stream: 1, length: 1},
	{kind: kindData, flags: flagFin, stream: 1},
	{kind: kindData, stream: maxStream, value: maxOffset - 1, length: maxBody},
	{kind: kindData, flags: flagFin, stream: maxStream, value: maxOffset - 1, length: maxBody},
	{kind: kindWindow, stream: 1},
	{kind: kindWindow, stream: maxStream, value: maxOffset - 1, credit: 1<<64 - 1},
	{kind: kindDone, stream: 1},
	{kind: kindDone, stream: maxStream},
}

// The bytes of the package comment's layout, by hand.
func TestShortLayout(t *testing.T) {
	for want, h := range map[string]header{
		"85 05 8002 8d01":   {kind: kindData, stream: 5, value: 256, length: 141},
		"a3 05 00 00":       {kind: kindData, flags: flagFin, stream: 5},
		"c6 8102 03 808004": {kind: kindWindow, stream: 257, value: 3, credit: 65536},
		"e1 7f":             {kind: kindDone, stream: 127},
	} {
		got := h.appendShort(nil)
		if want = strings.ReplaceAll(want, " ", ""); hex.EncodeToString(got) != want {
			t.Errorf("%v: %x, not %s", h.kind, got, want)
		}
		if again, err := parseShort(got, maxBody); err != nil || again != h {
			t.Errorf("%x is read as %+v, %v", got, again, err)
		}
	}
	for _, h := range shortHeaders {
		b := h.appendShort([]byte("before"))[len("before"):]
		if got, err := parseShort(b, maxBody); err != nil || got != h {
			t.Errorf("%+v is read as %+v, %v", h, got, err)
		}
		if h.kind == kindData && len(b) > headerLen {
			t.Errorf("%+v takes %d bytes, and a chunk has room for %d", h, len(b), headerLen)
		}
		if n := shortRecord(b); n != len(b)+h.length {
			t.Errorf("%+v begins a record of %d bytes, not %d", h, n, len(b)+h.length)
		}
	}
}

// A short header beyond the bounds of its kind, cut off or with bytes behind its numbers is an error that names the
// kind.
func TestShortErrors(t *testing.T) {
	raw := func(form byte, numbers string) []byte {
		b, err := hex.DecodeString(strings.ReplaceAll(numbers, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{shortMark | form<<5 | byte(len(b))}, b...)
	}
	for _, c := range []struct {
		want string
		b    []byte
	}{
		{"DATA record of 262145 bytes, not 0 to 262144", header{kind: kindData, stream: 1, length: maxBody + 1}.appendShort(nil)},
		{"DATA record of 18446744073709551615 bytes", raw(formFin, "01 00 ffffffffffffffffff01")},
		{"empty DATA record for stream 1", header{kind: kindData, stream: 1}.appendShort(nil)},
		{"DATA record with value 4611686018427387904, over 2^62", header{kind: kindData, stream: 1, value: maxOffset, length: 1}.appendShort(nil)},
		{"WINDOW record with value 4611686018427387904, over 2^62", header{kind: kindWindow, stream: 1, value: maxOffset}.appendShort(nil)},
		{"DATA record with a short header for stream 0", header{kind: kindData, length: 1}.appendShort(nil)},
		{"WINDOW record with a short header for stream 0", header{kind: kindWindow}.appendShort(nil)},
		{"DONE record with a short header for stream 0", header{kind: kindDone}.appendShort(nil)},
		{"DATA record with a short header for stream 281474976710656", header{kind: kindData, stream: maxStream + 1, length: 1}.appendShort(nil)},
		{"DONE record with 1 bytes behind the numbers", raw(formDone, "01 00")},
		{"WINDOW record with 2 bytes behind the numbers", raw(formWindow, "01 00 00 0000")},
		{"DATA record with a short header of 1 bytes, in which number 1 does not end", raw(formData, "")},
		{"DATA record with a short header of 3 bytes, in which number 3 does not end", raw(formData, "01 00")},
		{"WINDOW record with a short header of 4 bytes, in which number 3 does not end", raw(formWindow, "01 00 80")},
		{"DONE record with a short header of 12 bytes, in which number 1 does not end", raw(formDone, "ffffffffffffffffffff01")},
	} {
		if h, err := parseShort(c.b, maxBody); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%x is read as %+v, %v, nothing of %q", c.b, h, err, c.want)
		}
	}
}

// A peer whose HELLO does not say that it takes short headers gets none; any other one gets them for each DATA, WINDOW
// and DONE of a stream, and is sent the same bytes when they leave again.
func TestShortForPeersThatTakeThem(t *testing.T) {
	for _, takes := range []bool{false, true} {
		s, c := attached(t, Config{Name: "a"})
		s.short, c.short = takes, takes
		s.mu.Lock()
		for s.next(c) { // the carrier's first records
			s.release(c)
		}
		s.opened++
		st := &Stream{stream: s.newStream(streamID(s.opened-1, s.even)), session: s}
		st.limit = 64 << 10
		s.dones.push(streamID(7, !s.even))
		s.update(st.stream, true)
		s.mu.Unlock()
		if _, err := st.WriteMore([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.enqueue(st.stream, nil)
		if !s.next(c) {
			t.Fatal("nothing leaves")
		}
		out := bytes.Clone(c.out)
		again := bytes.Clone(st.head.record())
		s.release(c)
		s.mu.Unlock()
		if !bytes.HasSuffix(out, again) {
			t.Errorf("%x left, and %x is to leave again", out, again)
		}
		kinds := map[kind]int{}
		r := &carrier{in: bufio.NewReader(bytes.NewReader(out))}
		var room [maxAnyHeader]byte
		for {
			h, err := r.readHeader(&room)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.body(h); err != nil {
				t.Fatal(err)
			}
			kinds[h.kind]++
			if short := room[0] >= shortMark; short != takes {
				t.Errorf("the peer takes short headers: %v; that of a %v is: %v", takes, h.kind, short)
			}
		}
		if kinds[kindData] != 1 || kinds[kindWindow] != 1 || kinds[kindDone] != 1 || len(kinds) != 3 {
			t.Errorf("%v left", kinds)
		}
	}
}

// Records of streams, long and short, share a message over datagrams as far as they fit a packet. Every other record
// has a message of its own, so that it overtakes nothing.
func TestRecordsShareMessages(t *testing.T) {
	type piece struct {
		h     header
		short bool
		order datagram.Order
	}
	pieces := []piece{
		{header{kind: kindData, stream: 1, length: 3}, true, datagram.Free},
		{header{kind: kindData, flags: flagFin, stream: 300, value: 1 << 40}, true, datagram.Free},
		{header{kind: kindData, stream: 1, length: 700}, true, datagram.Free},
		{header{kind: kindData, stream: 1, length: 2000}, true, datagram.Free},
		{header{kind: kindWindow, stream: 5, credit: 1 << 20}, true, datagram.Free},
		{header{kind: kindDone, stream: 5}, true, datagram.Free},
		{header{kind: kindData, stream: 1, length: 3}, false, datagram.Free},
		{header{kind: kindReset, stream: 1, length: 4}, false, datagram.Free},
		{header{kind: kindDone, stream: 5}, false, datagram.Free},
		{header{kind: kindWindow, length: windowBody}, false, datagram.Last},
		{header{kind: kindPing}, false, datagram.Last},
		{header{kind: kindPad, length: 100}, false, datagram.Last},
		{header{kind: kindEnd, length: 5}, false, datagram.Last},
		{header{kind: kindLeave}, false, datagram.Fence},
	}
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	var lengths []int
	var orders []datagram.Order
	for range 10_000 {
		p, before := pieces[r.IntN(len(pieces))], len(b)
		if p.short {
			b = p.h.appendShort(b)
		} else {
			b = p.h.append(b)
		}
		b = append(b, bytes.Repeat([]byte{0xff}, p.h.length)...) // bytes that would begin a short header
		lengths, orders = append(lengths, len(b)-before), append(orders, p.order)
	}
	shared := 0
	for i := 0; i < len(lengths); {
		n, order := message(b)
		b = b[n:]
		whole := lengths[i]
		first := i
		for i++; whole < n; i++ {
			whole += lengths[i]
			if orders[i] != datagram.Free {
				t.Fatalf("record %d of order %d shares a message", i, orders[i])
			}
			shared++
		}
		switch {
		case whole != n || order != orders[first]:
			t.Fatalf("record %d: a message of %d bytes and order %d where its records have %d and order %d", first, n, order, whole, orders[first])
		case i > first+1 && n > datagramJoin:
			t.Fatalf("record %d: a message of %d bytes for several records", first, n)
		case order == datagram.Free && i < len(orders) && orders[i] == order && n+lengths[i] <= datagramJoin:
			t.Fatalf("record %d has a message of its own behind one of %d bytes", i, n)
		}
	}
	if len(b) > 0 || shared < 1000 {
		t.Errorf("%d bytes are left, and %d records shared a message", len(b), shared)
	}
}

// Both sides say that they take short headers. The HELLO of a session's first carrier counts for all its carriers.
func TestShortHeadersAreAgreed(t *testing.T) {
	for _, takes := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			f := &fabric{delay: time.Millisecond}
			s := f.site(t, Config{Name: "tokyo"}, insecure)
			p := connect(t, f, s, newIncarnation(), func(h *hello) { h.short = takes })
			connect(t, f, s, p.mine, func(h *hello) { h.short, h.place.slot = !takes, 1 })
			time.Sleep(time.Second)
			if !p.hers.short {
				t.Error("tokyo does not say that it takes short headers")
			}
			session := s.list()[0].session()
			session.mu.Lock()
			defer session.mu.Unlock()
			if session.short != takes || len(session.carriers) != 2 {
				t.Errorf("the peer takes short headers: %v; the session, of %d carriers, has them: %v", takes, len(session.carriers), session.short)
			}
			for _, c := range session.carriers {
				if c.short != takes {
					t.Errorf("the peer takes short headers: %v; carrier %d has them: %v", takes, c.place.slot, c.short)
				}
			}
		})
	}
}

// A Link that counts its reads.
type countedLink struct {
	Link
	reads int
}

func (l *countedLink) Read(p []byte) (int, error) {
	l.reads++
	return l.Link.Read(p)
}

// Small records are read many at a time: each call of a Link takes locks, and a peer may send records of two bytes
// without end.
func TestSmallRecordsAreReadTogether(t *testing.T) {
	s := newPeer(&newEndpoint(Config{Name: "a", Memory: 1 << 30}).home, Peer{Name: "puppet"}).sess
	if err := s.establish(&hello{mine: newIncarnation(), maxBody: maxBody, streams: 4, window: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	const records = 10_000
	var b []byte
	for range records {
		b = header{kind: kindDone, stream: streamID(0, !s.even)}.appendShort(b)
	}
	l := &countedLink{Link: deaf(bytes.NewReader(b))}
	c := &carrier{link: l, born: time.Now()}
	if !s.attach(c) {
		t.Fatal("not attached")
	}
	if _, err := s.read(c); err != io.EOF || c.records.Load() != records {
		t.Errorf("%d records came, and %v", c.records.Load(), err)
	}
	if enough := len(b)/smallBody + 2; l.reads > enough {
		t.Errorf("%d records of %d bytes in all were read by %d calls, and %d are enough", records, len(b), l.reads, enough)
	}
}

// A carrier that ends within a header has not ended in order.
func TestEndWithinHeader(t *testing.T) {
	for _, b := range [][]byte{header{kind: kindPing}.append(nil), header{kind: kindDone, stream: 300}.appendShort(nil)} {
		for cut := range len(b) {
			c := &carrier{in: bufio.NewReader(bytes.NewReader(b[:cut]))}
			var room [maxAnyHeader]byte
			want := io.ErrUnexpectedEOF
			if cut == 0 {
				want = io.EOF
			}
			if _, err := c.readHeader(&room); err != want {
				t.Errorf("after %d bytes of %d: %v", cut, len(b), err)
			}
		}
	}
}
