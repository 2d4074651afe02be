package grpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// An echo is a Service of /echo. that notes messages, and calls every second byte of them a tensor of two bytes.
type echo struct {
	calls  int
	notes  []string
	stream *grpc.Stream
}

func (*echo) String() string        { return "echo" }
func (*echo) Traits() parser.Traits { return parser.Traits{} }

func (e *echo) New(parser.Conn) (fromClient, fromServer parser.Parser) { return grpc.New(e) }

func (*echo) Speaks(path string) bool { return strings.HasPrefix(path, "/echo.") }

func (e *echo) Call(path string, s *grpc.Stream) grpc.Call {
	e.stream = s
	if path == "/echo.Echo/Ignored" {
		return nil
	}
	e.calls++
	return &call{e, e.calls}
}

type call struct {
	echo   *echo
	number int
}

func (c *call) Message(h grpc.Head) grpc.Message {
	if h.Compressed {
		c.echo.notes = append(c.echo.notes, "compressed")
	}
	return &message{call: c, head: h}
}

type message struct {
	call *call
	head grpc.Head
	text []byte
}

func (m *message) Next(b []byte, sure int) parser.Segment {
	t := tensor.Tensor{}
	if at := len(m.text); at%2 == 1 {
		t = tensor.Tensor{Key: uint64(m.call.number), Size: 1}
	}
	if len(b) > sure || sure > m.head.Len-len(m.text) {
		panic("more bytes than are sure, or more are sure than the message has")
	}
	m.text = append(m.text, b[0])
	return parser.Segment{Len: 1, Tensor: t}
}

func (m *message) End() bool {
	if len(m.text) != m.head.Len {
		panic("a message ends too soon")
	}
	m.call.echo.notes = append(m.call.echo.notes, fmt.Sprintf("%d %v %d %s", m.call.number, m.head.From, m.head.Number, m.text))
	return len(m.text) > 0
}

// conversation has messages over frame edges, several in a frame, an empty and a compressed one, and two calls that
// interleave.
func conversation(t testing.TB) parsertest.Exchange {
	w := grpctest.New(t)
	w.Unary("/echo.Echo/Say", []byte("hello"), []byte("hello yourself"), 3)
	a, b := w.Call("/echo.Echo/Chat"), w.Call("/echo.Echo/Chat")
	ignored := w.Call("/echo.Echo/Ignored")
	w.Data(parser.Client, a, bytes.Join([][]byte{grpctest.Prefixed([]byte("one")), grpctest.Prefixed(nil), grpctest.Prefixed([]byte("two"))[:6]}, nil), false)
	w.Data(parser.Client, b, append([]byte{1}, grpctest.Prefixed([]byte("zipped"))[1:]...), false)
	w.Data(parser.Client, ignored, grpctest.Prefixed([]byte("nobody")), true)
	w.Data(parser.Client, a, []byte("wo"), true)
	w.Message(parser.Client, b, []byte("three"), 100)
	w.Respond(b)
	w.Message(parser.Server, b, []byte("four"), 6)
	w.Data(parser.Server, b, []byte{2, 0, 0, 0, 9, 1, 2, 3}, false)
	w.Trailers(b)
	w.Headers(parser.Server, a, false, ":status", "404", "content-type", "text/html")
	w.Data(parser.Server, a, []byte("\000\000\000\000\004none"), true)
	return w.Exchange()
}

func TestMessages(t *testing.T) {
	const want = "1 client 0 hello; 1 server 0 hello yourself; 2 client 0 one; 2 client 1 ; compressed; 2 client 2 two; 3 client 1 three; 3 server 0 four"
	for name, cut := range map[string]parsertest.Cut{"whole": nil, "byte by byte": func(int) int { return 1 }} {
		e := new(echo)
		if _, err := parsertest.Play(e, parser.Conn{}, conversation(t), cut); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(e.notes, "; "); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	parsertest.Run(t, func() parser.Protocol { return new(echo) }, parser.Conn{}, conversation(t))
}

// Both directions count messages and payloads, and know the protocol from the first call on.
func TestCounters(t *testing.T) {
	from, to := new(echo).New(parser.Conn{})
	parsers := [2]parser.Counter{from.(parser.Counter), to.(parser.Counter)}
	for i, p := range conversation(t) {
		if i == 3 && (parsers[0].Recognized() || parsers[1].Recognized()) {
			t.Error("settings are taken for a call")
		}
		for b := p.Bytes; len(b) > 0; {
			seg, err := parsers[p.From].Next(b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[seg.Len:]
		}
	}
	for side, want := range [2][2]int{{7, 4}, {2, 2}} {
		all, payloads := parsers[side].Messages()
		if got := [2]int{all, payloads}; got != want || !parsers[side].Recognized() {
			t.Errorf("from the %v: %v, want %v", parser.Side(side), got, want)
		}
	}
}

// A connection whose first call is another framework's is foreign, in both directions; an HTTP/2 connection without
// gRPC is not known yet.
func TestForeign(t *testing.T) {
	w := grpctest.New(t)
	w.Headers(parser.Client, 1, true, ":method", "GET", ":path", "/index.html")
	from, _ := new(echo).New(parser.Conn{})
	var err error
	next := func(p parsertest.Piece) {
		for b := p.Bytes; len(b) > 0 && err == nil && p.From == parser.Client; {
			var seg parser.Segment
			seg, err = from.Next(b)
			b = b[seg.Len:]
		}
	}
	for _, p := range w.Exchange() {
		next(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	v := grpctest.New(t)
	v.Headers(parser.Client, 3, false, ":path", "/other.Service/Method", "content-type", "application/grpc+proto")
	all := v.Exchange()
	next(all[len(all)-1])
	next(parsertest.Piece{From: parser.Client, Bytes: []byte{0}})
	if !errors.Is(err, parser.ErrForeign) {
		t.Errorf("another framework's call: %v", err)
	}
}

// Content that is no longer understood stays opaque, whatever header fields follow.
func TestBrokenContent(t *testing.T) {
	w := grpctest.New(t)
	id := w.Call("/echo.Echo/Chat")
	w.Respond(id)
	w.Message(parser.Server, id, []byte("one"), 100)
	for _, from := range []parser.Side{parser.Client, parser.Server} {
		w.Data(from, id, []byte{2, 0, 0, 0, 1, 'x'}, false)
		w.Headers(from, id, false, "content-type", "application/grpc")
		w.Data(from, id, grpctest.Prefixed([]byte("two")), false)
	}
	e := new(echo)
	if _, err := parsertest.Play(e, parser.Conn{}, w.Exchange(), nil); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(e.notes, "; "); got != "1 server 0 one" {
		t.Errorf("messages %s", got)
	}
}

// A Stream is over once it is reset.
func TestStreamIsOver(t *testing.T) {
	e := new(echo)
	from, _ := e.New(parser.Conn{})
	w := grpctest.New(t)
	id := w.Call("/echo.Echo/Chat")
	play := func() {
		for _, p := range w.Exchange() {
			if p.From == parser.Client {
				if _, err := from.Next(p.Bytes); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	play()
	if e.stream.Over() {
		t.Fatal("the call is over before it has begun")
	}
	reset := parsertest.Piece{Bytes: []byte{0, 0, 4, 3, 0, 0, 0, 0, byte(id), 0, 0, 0, 8}}
	if _, err := from.Next(reset.Bytes); err != nil || !e.stream.Over() {
		t.Errorf("a reset: %v, over %v", err, e.stream.Over())
	}
}

// No bytes make a Service see a message that is not whole, or depend on how they are cut.
func FuzzNext(f *testing.F) {
	f.Add(parsertest.Fold(conversation(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		parsertest.AnyCut(t, func() parser.Protocol { return new(echo) }, parser.Conn{}, parsertest.Unfold(b))
	})
}

// Messages whose prefixes say more than comes, up to 4 GiB, are told as they are, cost nothing but their bytes, and
// leave other calls alone; one of 2 GiB is read to its end.
func TestLongMessages(t *testing.T) {
	s := new(long)
	client, server := grpc.New(s)
	next := func(p parsertest.Piece) {
		for b := p.Bytes; len(b) > 0; {
			seg, err := []parser.Parser{client, server}[p.From].Next(b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[seg.Len:]
		}
	}
	w := grpctest.New(t)
	lies, whole := w.Call("/echo.Echo/Lies"), w.Call("/echo.Echo/Whole")
	w.Data(parser.Client, lies, append([]byte{0, 0xff, 0xff, 0xff, 0xff}, "a few bytes"...), false)
	w.Data(parser.Client, whole, append([]byte{0}, 0x80, 0, 0, 0), false)
	w.Data(parser.Client, lies, []byte("and the end"), true)
	for _, p := range w.Exchange() {
		next(p)
	}
	const frame = 1<<24 - 16 // 2 GiB are 128 of these, and some
	content := make([]byte, 1<<20)
	for left := 1 << 31; left > 0; {
		n := min(left, frame)
		next(parsertest.Piece{From: parser.Client, Bytes: []byte{byte(n >> 16), byte(n >> 8), byte(n), 0, 0, 0, 0, 0, byte(whole)}})
		for left -= n; n > 0; n -= min(n, len(content)) {
			next(parsertest.Piece{From: parser.Client, Bytes: content[:min(n, len(content))]})
		}
	}
	if want := []int{1<<32 - 1, 1 << 31}; !slices.Equal(s.heads, want) || !slices.Equal(s.ended, want[1:]) || s.took != 1<<31+len("a few bytesand the end") {
		t.Errorf("messages of %d bytes began and of %d ended, with %d bytes in all", s.heads, s.ended, s.took)
	}
	if n := parser.Held(client); n > 16<<10 {
		t.Errorf("%d bytes are held", n)
	}
}

// A long is a Service that notes the lengths of messages that begin and end, and counts their bytes.
type long struct {
	heads, ended []int
	took         int
}

func (*long) Speaks(string) bool                    { return true }
func (s *long) Call(string, *grpc.Stream) grpc.Call { return s }
func (s *long) Message(h grpc.Head) grpc.Message {
	s.heads = append(s.heads, h.Len)
	return &longMessage{s, h.Len}
}

type longMessage struct {
	*long
	size int
}

func (m *longMessage) Next(b []byte, _ int) parser.Segment {
	m.took += len(b)
	return parser.Segment{Len: len(b)}
}

func (m *longMessage) End() bool { m.ended = append(m.ended, m.size); return true }
