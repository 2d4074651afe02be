package main

import (
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
)

// play shows pieces of a connection to a watch, one a millisecond, and returns its table.
func play(pieces []piece) string {
	var at time.Time
	var times table
	w := &watch{now: func() time.Time { return at }, table: &times}
	for _, p := range pieces {
		at = at.Add(time.Millisecond)
		w.see(p.from, []byte(p.bytes))
	}
	w.end()
	return times.markdown()
}

type piece struct {
	from  parser.Side
	bytes string
}

const header = "| method | calls | median, ms | 99 %, ms | longest, ms |\n| --- | ---:| ---:| ---:| ---:|\n"

// A call of HTTP/1.1 goes from its first byte to the answer's last one, however both are cut. A request without an
// answer is no call.
func TestHTTP1(t *testing.T) {
	const c, s = parser.Client, parser.Server
	got := play([]piece{{c, "PO"}, {c, "ST /push?id=1 HTTP/1.1\r\nContent-Length: 4\r\n\r\nb"}, {c, "ody"}, {s, "HTTP/1.1 200 OK\r\n"}, {s, "\r\n"},
		{c, "GET /pull HTTP/1.1\r\n\r\n"}, {s, "HTTP/1.1 200 OK\r\n\r\n"}, {c, "GET /pull HTTP/1.1\r\n\r\n"}, {s, "a"}, {s, "b"}, {s, "c"}, {c, "GET /never HTTP/1.1\r\n\r\n"}})
	if want := header + "| `GET /pull` | 2 | 1.0 | 1.0 | 3.0 |\n| `POST /push` | 1 | 4.0 | 4.0 | 4.0 |\n"; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// Calls of gRPC are timed from their header fields to the ends of their streams, also where the server speaks first.
func TestGRPC(t *testing.T) {
	w := grpctest.New(t)
	w.Unary("/a.B/C", []byte("request"), []byte("response"), 100)
	w.Call("/a.B/Open")
	var pieces []piece
	for _, p := range w.Exchange() {
		pieces = append(pieces, piece{p.From, string(p.Bytes)})
	}
	got := play(pieces)
	first := slices.IndexFunc(pieces, func(p piece) bool { return p.from == parser.Server })
	settings := pieces[first]
	if other := play(slices.Insert(slices.Delete(pieces, first, first+1), 0, settings)); other != got {
		t.Errorf("with the server first:\n%s, else\n%s", other, got)
	}
	if want := header + "| `/a.B/C` | 1 |"; len(got) < len(want) || got[:len(want)] != want || len(got) > len(want)+40 {
		t.Errorf("%s, want one call of /a.B/C", got)
	}
}
