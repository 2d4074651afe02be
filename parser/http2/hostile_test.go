package http2_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	xhttp2 "golang.org/x/net/http2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
)

// floods are frames of one kind without end, or with the most that they may say. Each begins where a stream of number 1
// is open, and leaves a connection that can go on.
var floods = map[string]func(w *grpctest.Wire){
	"header blocks in empty fragments": func(w *grpctest.Wire) {
		k := w.Block(parser.Client, ":method", "POST", ":path", "/a")
		w.Frame(parser.Client, func(f *xhttp2.Framer) error {
			return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: k[:1]})
		})
		for range 20_000 {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteContinuation(3, false, nil) })
		}
		w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteContinuation(3, true, k[1:]) })
	},
	"streams that are reset at once": func(w *grpctest.Wire) {
		for range 10_000 {
			id := w.Call("/a")
			w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteRSTStream(id, xhttp2.ErrCodeCancel) })
		}
	},
	"windows of any size": func(w *grpctest.Wire) {
		for i := range uint32(5000) {
			for _, id := range []uint32{0, 1, 99} {
				raw := binary.BigEndian.AppendUint32(nil, []uint32{0, 1, 1<<31 - 1, 1<<32 - 1}[i%4])
				w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteRawFrame(xhttp2.FrameWindowUpdate, 0, id, raw) })
			}
		}
	},
	"settings that say the most": func(w *grpctest.Wire) {
		for id := range xhttp2.SettingID(20) {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteSettings(xhttp2.Setting{ID: id, Val: 1<<32 - 1}) })
		}
	},
	"padding and nothing else": func(w *grpctest.Wire) {
		for range 5000 {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteDataPadded(1, false, nil, make([]byte, 255)) })
		}
	},
	"tables that grow and shrink": func(w *grpctest.Wire) {
		for i := range 5000 {
			b := []byte{0x3f, 0xe1, 0xff, 0x03, 0x00, 1, 'a', 1, 'b'} // 65,536 bytes, and a field that is put into no table
			if i%2 == 0 {
				b[1], b[2], b[3] = 0xe1, 0x9f, 0x01 // 20,480
			}
			id := w.Call("/ignored")
			w.Frame(parser.Client, func(f *xhttp2.Framer) error {
				return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndHeaders: true, EndStream: true})
			})
		}
	},
}

// Floods take no memory, and the bytes of the stream that is open are told from the others before and after them.
func TestFloods(t *testing.T) {
	for name, flood := range floods {
		w := grpctest.New(t)
		w.Call("/a")
		w.Data(parser.Client, 1, []byte("before "), false)
		flood(w)
		w.Data(parser.Client, 1, []byte("after"), false)
		s := new(server)
		client, _ := s.New(parser.Conn{})
		limit := 0
		for _, p := range w.Exchange() {
			for b := p.Bytes; p.From == parser.Client && len(b) > 0; {
				seg, err := client.Next(b)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				b = b[seg.Len:]
			}
			limit = max(limit, parser.Held(client))
		}
		if got := string(s.readers[0].data[parser.Client]); got != "before after" {
			t.Errorf("%s: the stream has %q", name, got)
		}
		if limit > 16<<10 {
			t.Errorf("%s: %d bytes are held", name, limit)
		}
	}
}

// Of a frame as long as frames can be, content comes in part; then the stream is reset, or the frame goes on after
// that. Other streams are read as if nothing were.
func TestLongestFrame(t *testing.T) {
	const longest = 1<<24 - 1
	s := new(server)
	client, server := s.New(parser.Conn{})
	w := grpctest.New(t)
	w.Call("/a")
	w.Call("/b")
	next := func(d parser.Parser, b []byte) {
		for len(b) > 0 {
			seg, err := d.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[seg.Len:]
		}
	}
	for _, p := range w.Exchange() {
		next([]parser.Parser{client, server}[p.From], p.Bytes)
	}
	piece := bytes.Repeat([]byte("x"), 1<<16)
	next(client, []byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1})
	next(client, piece)
	next(server, []byte{0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8})
	for left := longest - len(piece); left > 0; left -= len(piece) {
		next(client, piece[:min(left, len(piece))])
	}
	next(client, append([]byte{0, 0, 4, 0, 1, 0, 0, 0, 3}, "next"...))
	if got := string(s.readers[1].data[parser.Client]); got != "next" || s.readers[0].closed != 1 {
		t.Errorf("the other stream has %q; the first was closed %d times", got, s.readers[0].closed)
	}
	if n := parser.Held(client); n > 16<<10 {
		t.Errorf("%d bytes are held", n)
	}
}
