package http2_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	"github.com/gradproxy/gradproxy/parser/http2"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A reader is an Exchange that notes its stream. Every byte of content is a tensor, so that classes tell content from
// other bytes.
type reader struct {
	key    uint64
	data   [2][]byte
	fields []string
	closed int
	pathed string
	beyond bool
}

func (r *reader) Headers(from parser.Side, f http2.Fields) {
	r.fields = append(r.fields, fmt.Sprintf("%v %s", from, text(f)))
}

func text(f http2.Fields) string {
	var all []string
	for _, x := range f {
		all = append(all, x.Name+"="+x.Value)
	}
	return strings.Join(all, " ")
}

func (r *reader) Data(from parser.Side, b []byte, rest int) (parser.Segment, error) {
	off := len(r.data[from])
	if r.data[from] = append(r.data[from], b...); len(b) > rest {
		r.beyond = true
	}
	return parser.Segment{Len: len(b), Tensor: tensor.Tensor{Key: r.key, Size: 1 << 30, Off: off}}, nil
}

func (r *reader) Close() { r.closed++ }

// A server is a Protocol that reads all streams but those of path "/ignored".
type server struct {
	readers []*reader
	foreign bool
}

func (*server) String() string        { return "http2" }
func (*server) Traits() parser.Traits { return parser.Traits{} }

func (s *server) New(parser.Conn) (fromClient, fromServer parser.Parser) {
	return http2.New(func(f http2.Fields) (http2.Exchange, error) {
		if s.foreign {
			return nil, parser.ErrForeign
		}
		if f.Get(":path") == "/ignored" {
			return nil, nil
		}
		r := &reader{key: uint64(len(s.readers) + 1), pathed: f.Get(":path")}
		s.readers = append(s.readers, r)
		return r, nil
	})
}

// play gives an exchange to a server byte by byte, or whole.
func play(t *testing.T, x parsertest.Exchange, cut parsertest.Cut) (*server, parsertest.Classes) {
	t.Helper()
	s := new(server)
	c, err := parsertest.Play(s, parser.Conn{}, x, cut)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// busy is a connection with every kind of frame, two streams that interleave, padding, and header blocks in pieces.
func busy(t testing.TB) parsertest.Exchange {
	w := grpctest.New(t)
	raw := func(from parser.Side, typ xhttp2.FrameType, flags xhttp2.Flags, id uint32, b []byte) {
		w.Frame(from, func(f *xhttp2.Framer) error { return f.WriteRawFrame(typ, flags, id, b) })
	}
	w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteWindowUpdate(0, 1<<20) })
	w.Frame(parser.Server, func(f *xhttp2.Framer) error { return f.WriteSettingsAck() })
	w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteSettingsAck() })
	a := w.Call("/a")
	ignored := w.Call("/ignored")
	w.Data(parser.Client, ignored, []byte("nobody reads this"), true)
	w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteDataPadded(a, false, []byte("one "), make([]byte, 7)) })
	w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WritePing(false, [8]byte{1}) })
	// A header block with padding and priority, in three fragments, the last of them empty.
	k := w.Block(parser.Client, ":method", "POST", ":path", "/b", "x", strings.Repeat("long ", 100))
	c := uint32(5)
	w.Frame(parser.Client, func(f *xhttp2.Framer) error {
		return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: c, BlockFragment: k[:3], PadLength: 5, Priority: xhttp2.PriorityParam{Weight: 3}})
	})
	w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteContinuation(c, false, k[3:]) })
	w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteContinuation(c, true, nil) })
	w.Data(parser.Client, c, []byte("uno "), false)
	w.Data(parser.Client, a, []byte("two"), true)
	w.Data(parser.Client, c, nil, false)
	w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WritePriority(c, xhttp2.PriorityParam{StreamDep: a}) })
	w.Data(parser.Client, c, []byte("dos"), true)
	raw(parser.Server, 0xbe, 0xff, 77, []byte("a private frame"))
	w.Frame(parser.Server, func(f *xhttp2.Framer) error {
		return f.WritePushPromise(xhttp2.PushPromiseParam{StreamID: a, PromiseID: 2, BlockFragment: w.Block(parser.Server, ":path", "/pushed"), EndHeaders: true, PadLength: 2})
	})
	w.Respond(c)
	w.Respond(a)
	w.Data(parser.Server, c, []byte("three "), false)
	w.Frame(parser.Server, func(f *xhttp2.Framer) error { return f.WritePing(true, [8]byte{1}) })
	w.Data(parser.Server, a, []byte("tres"), false)
	w.Data(parser.Server, c, []byte("four"), false)
	w.Trailers(c)
	w.Frame(parser.Server, func(f *xhttp2.Framer) error { return f.WriteRSTStream(a, xhttp2.ErrCodeCancel) })
	w.Data(parser.Client, a, []byte("after the end"), false)
	w.Frame(parser.Server, func(f *xhttp2.Framer) error { return f.WriteGoAway(5, xhttp2.ErrCodeNo, []byte("bye")) })
	return w.Exchange()
}

// Streams get the content and the header fields that are theirs, however the connection is cut.
func TestStreams(t *testing.T) {
	for name, cut := range map[string]parsertest.Cut{"whole": nil, "byte by byte": func(int) int { return 1 }} {
		s, classes := play(t, busy(t), cut)
		if len(s.readers) != 2 {
			t.Fatalf("%s: %d streams were read", name, len(s.readers))
		}
		a, b := s.readers[0], s.readers[1]
		for _, x := range []struct{ got, want string }{
			{a.pathed, "/a"}, {b.pathed, "/b"},
			{string(a.data[parser.Client]), "one two"}, {string(b.data[parser.Client]), "uno dos"},
			{string(a.data[parser.Server]), "tres"}, {string(b.data[parser.Server]), "three four"},
			{strings.Join(b.fields, "; "), "server :status=200 content-type=application/grpc grpc-accept-encoding=identity; server grpc-status=0"},
		} {
			if x.got != x.want {
				t.Errorf("%s: %q, want %q", name, x.got, x.want)
			}
		}
		if a.closed != 1 || b.closed != 1 || a.beyond || b.beyond {
			t.Errorf("%s: closed %d and %d times", name, a.closed, b.closed)
		}
		n := 0
		for _, r := range append(classes.Client, classes.Server...) {
			if r.Tensor.Size > 0 {
				n += r.Len
			}
		}
		if want := len("one twouno dostresthree four"); n != want {
			t.Errorf("%s: %d bytes of content, want %d", name, n, want)
		}
	}
}

// The promises of package parser hold, for a whole connection and for bytes that are none.
func TestConformance(t *testing.T) {
	parsertest.Run(t, func() parser.Protocol { return new(server) }, parser.Conn{}, busy(t),
		append(busy(t), parsertest.Piece{From: parser.Client, Bytes: bytes.Repeat([]byte{0xff}, 50)}),
		parsertest.Exchange{{From: parser.Client, Bytes: []byte("PRI * HTTP/2.0\r\n\r\nSm")}, {From: parser.Server, Bytes: []byte("HTTP/1.1 200 OK\r\n")}})
}

// rawFrame writes a server's frame of n bytes.
func rawFrame(typ xhttp2.FrameType, flags xhttp2.Flags, id uint32, n int) func(*grpctest.Wire) {
	return func(w *grpctest.Wire) {
		w.Frame(parser.Server, func(f *xhttp2.Framer) error { return f.WriteRawFrame(typ, flags, id, make([]byte, n)) })
	}
}

// Each side's first frame is SETTINGS, and no confirmation of the other's. A stream that begins otherwise is foreign.
func TestFirstFrames(t *testing.T) {
	for name, frame := range map[string][]byte{
		"a ping":         {0, 0, 8, 6, 0, 0, 0, 0, 0},
		"a confirmation": {0, 0, 0, 4, 1, 0, 0, 0, 0},
	} {
		client, server := new(server).New(parser.Conn{})
		seg, err := client.Next([]byte(xhttp2.ClientPreface))
		if err != nil || seg.Len != len(xhttp2.ClientPreface) {
			t.Fatal(seg, err)
		}
		for _, d := range []parser.Parser{client, server} {
			if _, err := d.Next(frame); !errors.Is(err, parser.ErrForeign) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Content that comes after a side's end of a stream is nobody's.
func TestContentAfterTheEnd(t *testing.T) {
	w := grpctest.New(t)
	id := w.Call("/a")
	w.Data(parser.Client, id, []byte("all"), true)
	w.Data(parser.Client, id, []byte(" and more"), false)
	w.Respond(id)
	if s, _ := play(t, w.Exchange(), nil); string(s.readers[0].data[parser.Client]) != "all" {
		t.Errorf("the stream has %q", s.readers[0].data[parser.Client])
	}
}

// Only a client opens streams, each with an odd number.
func TestEvenStreams(t *testing.T) {
	w := grpctest.New(t)
	w.Headers(parser.Client, 2, false, ":path", "/even")
	w.Headers(parser.Client, 3, false, ":path", "/odd")
	if s, _ := play(t, w.Exchange(), nil); len(s.readers) != 1 || s.readers[0].pathed != "/odd" {
		t.Errorf("%d streams are read", len(s.readers))
	}
}

// A broken protocol, and a header block that is too large, end the direction, and leave the other one.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		write func(w *grpctest.Wire)
		from  parser.Side
	}{
		"data on stream 0": {func(w *grpctest.Wire) { w.Data(parser.Client, 0, []byte("x"), false) }, parser.Client},
		"too much padding": {func(w *grpctest.Wire) {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error {
				return f.WriteRawFrame(xhttp2.FrameData, xhttp2.FlagDataPadded, 1, []byte{9, 1})
			})
		}, parser.Client},
		"a ping of 9 bytes": {func(w *grpctest.Wire) {
			w.Frame(parser.Server, func(f *xhttp2.Framer) error { return f.WriteRawFrame(xhttp2.FramePing, 0, 0, make([]byte, 9)) })
		}, parser.Server},
		"a continuation of nothing": {func(w *grpctest.Wire) {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteContinuation(1, true, nil) })
		}, parser.Client},
		"a frame amid a header block": {func(w *grpctest.Wire) {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error {
				return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82}})
			})
			w.Data(parser.Client, 1, nil, true)
		}, parser.Client},
		"a reference to no field": {func(w *grpctest.Wire) {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error {
				return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0xff, 0x7f}, EndHeaders: true})
			})
		}, parser.Client},
		"a table of 1 MiB": {func(w *grpctest.Wire) {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error {
				return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x3f, 0xe1, 0xff, 0x3f}, EndHeaders: true})
			})
		}, parser.Client},
		"a bomb": {func(w *grpctest.Wire) {
			k := w.Block(parser.Client, "bomb", strings.Repeat("x", 3000))
			k = append(k, bytes.Repeat([]byte{0x80 | 62}, 1000)...)
			w.Frame(parser.Client, func(f *xhttp2.Framer) error {
				return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: k, EndHeaders: true})
			})
		}, parser.Client},
		"an endless header block": {func(w *grpctest.Wire) {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error {
				return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: nil})
			})
			for range 20 {
				w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteContinuation(3, false, make([]byte, 16<<10)) })
			}
		}, parser.Client},
		"a continuation of another stream's block": {func(w *grpctest.Wire) {
			k := w.Block(parser.Client, ":path", "/b")
			w.Frame(parser.Client, func(f *xhttp2.Framer) error {
				return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: k[:1]})
			})
			w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteContinuation(5, true, k[1:]) })
		}, parser.Client},
		"a client's promise": {func(w *grpctest.Wire) {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error {
				return f.WritePushPromise(xhttp2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: w.Block(parser.Client, ":path", "/b"), EndHeaders: true})
			})
		}, parser.Client},
		"headers on stream 0":         {rawFrame(xhttp2.FrameHeaders, xhttp2.FlagHeadersEndHeaders, 0, 0), parser.Server},
		"headers without their lead":  {rawFrame(xhttp2.FrameHeaders, xhttp2.FlagHeadersPadded|xhttp2.FlagHeadersPriority, 1, 5), parser.Server},
		"a promise without a stream":  {rawFrame(xhttp2.FramePushPromise, 0, 1, 3), parser.Server},
		"a priority of 4 bytes":       {rawFrame(xhttp2.FramePriority, 0, 1, 4), parser.Server},
		"a priority on stream 0":      {rawFrame(xhttp2.FramePriority, 0, 0, 5), parser.Server},
		"a reset of 3 bytes":          {rawFrame(xhttp2.FrameRSTStream, 0, 1, 3), parser.Server},
		"a reset on stream 0":         {rawFrame(xhttp2.FrameRSTStream, 0, 0, 4), parser.Server},
		"settings of 7 bytes":         {rawFrame(xhttp2.FrameSettings, 0, 0, 7), parser.Server},
		"settings of a stream":        {rawFrame(xhttp2.FrameSettings, 0, 1, 6), parser.Server},
		"settings that are confirmed": {rawFrame(xhttp2.FrameSettings, xhttp2.FlagSettingsAck, 0, 6), parser.Server},
		"a ping on a stream":          {rawFrame(xhttp2.FramePing, 0, 1, 8), parser.Server},
		"a farewell of 7 bytes":       {rawFrame(xhttp2.FrameGoAway, 0, 0, 7), parser.Server},
		"a farewell on a stream":      {rawFrame(xhttp2.FrameGoAway, 0, 1, 8), parser.Server},
		"a window of 5 bytes":         {rawFrame(xhttp2.FrameWindowUpdate, 0, 1, 5), parser.Server},
	} {
		w := grpctest.New(t)
		w.Call("/a")
		c.write(w)
		p := new(server)
		from, to := p.New(parser.Conn{})
		parsers := [2]parser.Parser{from, to}
		var failed [2]error
		for _, piece := range w.Exchange() {
			for b := piece.Bytes; len(b) > 0 && failed[piece.From] == nil; {
				seg, err := parsers[piece.From].Next(b)
				failed[piece.From] = err
				b = b[seg.Len:]
			}
		}
		if err := failed[c.from]; !errors.Is(err, parser.ErrForget) || errors.Is(err, parser.ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
		if err := failed[1-c.from]; err != nil {
			t.Errorf("%s: the other direction: %v", name, err)
		}
	}
}

// A connection that its reader finds foreign ends in both directions.
func TestForeign(t *testing.T) {
	s := &server{foreign: true}
	from, to := s.New(parser.Conn{})
	w := grpctest.New(t)
	w.Call("/a")
	var err error
	for _, p := range w.Exchange() {
		if p.From == parser.Client && err == nil {
			_, err = from.Next(p.Bytes)
		} else if _, e := to.Next(p.Bytes); e != nil {
			t.Fatal(e)
		}
	}
	if _, err = from.Next([]byte{0}); !errors.Is(err, parser.ErrForeign) {
		t.Errorf("the client's direction: %v", err)
	}
	for range 3 { // the bytes of the frame's header are opaque
		if _, err = to.Next(make([]byte, 9)); err != nil {
			break
		}
	}
	if !errors.Is(err, parser.ErrForeign) {
		t.Errorf("the server's direction: %v", err)
	}
}

// A peer that opens streams and never ends them takes no more memory than the limit allows, and the connection goes on.
func TestStreamsAreBounded(t *testing.T) {
	w := grpctest.New(t)
	for range 5000 {
		w.Call("/a")
	}
	w.Data(parser.Client, 1, []byte("first"), true)
	w.Data(parser.Client, 9999, []byte("one too many"), true)
	s, _ := play(t, w.Exchange(), nil)
	if got := string(s.readers[0].data[0]); got != "first" {
		t.Errorf("the first stream has %q", got)
	}
	if got := string(s.readers[4999].data[0]); got != "" || s.readers[4999].closed != 1 {
		t.Errorf("the last stream has %q, and was closed %d times", got, s.readers[4999].closed)
	}
}

// No bytes make a direction panic, break the contract of package parser, or depend on how they are cut.
func FuzzNext(f *testing.F) {
	f.Add(parsertest.Fold(busy(f)))
	w := grpctest.New(f)
	w.Unary("/a", []byte("request"), bytes.Repeat([]byte("response"), 100), 50)
	f.Add(parsertest.Fold(w.Exchange()))
	f.Fuzz(func(t *testing.T, b []byte) {
		parsertest.AnyCut(t, func() parser.Protocol { return new(server) }, parser.Conn{}, parsertest.Unfold(b))
	})
}
