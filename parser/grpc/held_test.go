package grpc_test

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
)

// A request can name its path by a byte, from the table of header fields, however long the path is. Calls that are
// open take no memory that the connection does not tell.
func TestLongPaths(t *testing.T) {
	const streams = 2000
	path := "/echo.Echo/" + strings.Repeat("x", 60_000)
	grpcType := "application/grpc"
	// A table of 65,536 bytes, and literals that are put into it: content-type, then :path.
	first := append([]byte{0x3f, 0xe1, 0xff, 0x03, 0x40 | 31, byte(len(grpcType))}, grpcType...)
	first = append(binary.AppendUvarint(append(first, 0x40|4, 0x7f), uint64(len(path)-127)), path...)
	block := first
	w := grpctest.New(t)
	for i := range uint32(streams) {
		w.Frame(parser.Client, func(f *xhttp2.Framer) error {
			return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block, EndHeaders: true})
		})
		block = []byte{0x80 | 62, 0x80 | 63}
	}
	// A call whose path has a usual length, and whose fields are in no table.
	block = append([]byte{0x0f, 31 - 15, byte(len(grpcType))}, grpcType...)
	usual := "/echo.Echo/Say"
	block = append(append(block, 0x04, byte(len(usual))), usual...)
	w.Frame(parser.Client, func(f *xhttp2.Framer) error {
		return f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 2*streams + 1, BlockFragment: block, EndHeaders: true})
	})
	w.Message(parser.Client, 2*streams+1, []byte("hello"), 100)

	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	e := new(echo)
	client, server := e.New(parser.Conn{})
	before := heap()
	for _, p := range w.Exchange() {
		for b := p.Bytes; p.From == parser.Client && len(b) > 0; {
			seg, err := client.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[seg.Len:]
		}
	}
	takes := heap() - before
	if told := parser.Held(client); takes > told+100<<10 {
		t.Errorf("%d bytes are told, and %d taken", told, takes)
	}
	if len(e.notes) != 1 || !strings.HasSuffix(e.notes[0], "hello") {
		t.Errorf("a call of usual length has messages %q", e.notes)
	}
	runtime.KeepAlive(server)
}
