// Package grpctest makes the bytes of gRPC connections, for tests of parsers.
package grpctest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

// A Wire writes the two directions of a connection, in the order in which its methods are called.
type Wire struct {
	tb    testing.TB
	sides [2]side
	last  uint32 // stream
	x     parsertest.Exchange
}

type side struct {
	out    bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
}

// New begins a connection: the client's preface, and both sides' settings.
func New(tb testing.TB) *Wire {
	w := &Wire{tb: tb}
	for i := range w.sides {
		s := &w.sides[i]
		s.framer = http2.NewFramer(&s.out, nil)
		s.framer.AllowIllegalWrites = true
		s.hpack = hpack.NewEncoder(&s.block)
	}
	w.Raw(parser.Client, []byte(http2.ClientPreface))
	for _, from := range []parser.Side{parser.Client, parser.Server} {
		w.Frame(from, func(f *http2.Framer) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 4 << 20}, http2.Setting{ID: 0xfe03, Val: 1})
		})
	}
	return w
}

// Raw appends bytes.
func (w *Wire) Raw(from parser.Side, b []byte) {
	w.x = append(w.x, parsertest.Piece{From: from, Bytes: bytes.Clone(b)})
}

// Frame appends the frames that write writes.
func (w *Wire) Frame(from parser.Side, write func(f *http2.Framer) error) {
	w.tb.Helper()
	s := &w.sides[from]
	s.out.Reset()
	if err := write(s.framer); err != nil {
		w.tb.Fatal(err)
	}
	w.Raw(from, s.out.Bytes())
}

// Block returns a header block of a side, of names and values in turn.
func (w *Wire) Block(from parser.Side, fields ...string) []byte {
	w.tb.Helper()
	s := &w.sides[from]
	s.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := s.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			w.tb.Fatal(err)
		}
	}
	return bytes.Clone(s.block.Bytes())
}

// Headers sends a header block, of names and values in turn.
func (w *Wire) Headers(from parser.Side, id uint32, end bool, fields ...string) {
	w.tb.Helper()
	b := w.Block(from, fields...)
	w.Frame(from, func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndStream: end, EndHeaders: true})
	})
}

// Call begins a call of the method with that path, and returns its stream.
func (w *Wire) Call(path string) uint32 {
	w.tb.Helper()
	id := w.last + 1
	w.last += 2
	w.Headers(parser.Client, id, false, ":method", "POST", ":scheme", "http", ":path", path, ":authority", "127.0.0.1:2222",
		"te", "trailers", "content-type", "application/grpc", "user-agent", "grpctest/1", "grpc-accept-encoding", "identity, deflate, gzip")
	return id
}

// Respond begins the response of a call.
func (w *Wire) Respond(id uint32) {
	w.tb.Helper()
	w.Headers(parser.Server, id, false, ":status", "200", "content-type", "application/grpc", "grpc-accept-encoding", "identity")
}

// Trailers ends the response of a call.
func (w *Wire) Trailers(id uint32) {
	w.tb.Helper()
	w.Headers(parser.Server, id, true, "grpc-status", "0")
}

// Data sends content in one frame.
func (w *Wire) Data(from parser.Side, id uint32, content []byte, end bool) {
	w.tb.Helper()
	w.Frame(from, func(f *http2.Framer) error { return f.WriteData(id, end, content) })
}

// Prefixed returns a message behind its prefix.
func Prefixed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// Message sends a message in frames of size bytes. The last frame ends a request.
func (w *Wire) Message(from parser.Side, id uint32, message []byte, size int) {
	w.tb.Helper()
	for b := Prefixed(message); len(b) > 0; {
		n := min(size, len(b))
		w.Data(from, id, b[:n], from == parser.Client && n == len(b))
		b = b[n:]
	}
}

// Unary makes a whole call, in frames of size bytes.
func (w *Wire) Unary(path string, request, response []byte, size int) {
	w.tb.Helper()
	id := w.Call(path)
	w.Message(parser.Client, id, request, size)
	w.Respond(id)
	w.Message(parser.Server, id, response, size)
	w.Trailers(id)
}

// Exchange returns the connection's bytes so far.
func (w *Wire) Exchange() parsertest.Exchange { return w.x }
