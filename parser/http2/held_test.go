package http2_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	"github.com/gradproxy/gradproxy/parser/http2"
)

// A heavy is an Exchange that takes a thousand times the bytes of its content, and counts how often it was asked.
type heavy struct {
	http2.Exchange
	takes, asked int
}

func (h *heavy) Data(from parser.Side, b []byte, rest int) (parser.Segment, error) {
	h.takes += 1000 * len(b)
	return parser.Segment{Len: len(b)}, nil
}

func (h *heavy) Held() int {
	h.asked++
	return h.takes
}

func (*heavy) Headers(parser.Side, http2.Fields) {}
func (*heavy) Close()                            {}

// A connection holds what its streams hold, and nothing of streams that have ended or were reset, not even where a
// frame of such a stream was under way. Telling it asks no stream.
func TestHeld(t *testing.T) {
	const content = "content"
	for name, c := range map[string]struct {
		end  func(w *grpctest.Wire, id uint32)
		left int // streams of two
	}{
		"goes on": {func(*grpctest.Wire, uint32) {}, 2},
		"reset": {func(w *grpctest.Wire, id uint32) {
			w.Frame(parser.Server, func(f *xhttp2.Framer) error { return f.WriteRSTStream(id, xhttp2.ErrCodeCancel) })
		}, 1},
		"ended": {func(w *grpctest.Wire, id uint32) {
			w.Data(parser.Client, id, nil, true)
			w.Respond(id)
			w.Trailers(id)
		}, 1},
	} {
		var all []*heavy
		client, server := http2.New(func(http2.Fields) (http2.Exchange, error) {
			all = append(all, new(heavy))
			return all[len(all)-1], nil
		})
		feed := func(x []byte, d *http2.Direction) {
			for len(x) > 0 {
				seg, err := d.Next(x)
				if err != nil {
					t.Fatal(err)
				}
				x = x[seg.Len:]
			}
		}
		w := grpctest.New(t)
		a, b := w.Call("/a"), w.Call("/a")
		w.Data(parser.Client, a, []byte(content), false)
		w.Data(parser.Client, b, []byte(content), false)
		c.end(w, b)
		w.Data(parser.Client, b, []byte(content), false) // the last content of a stream that may be none any more
		var sides [2][]byte
		for _, p := range w.Exchange() {
			sides[p.From] = append(sides[p.From], p.Bytes...)
		}
		cut := len(sides[parser.Client]) - 3 // within the last frame
		feed(sides[parser.Client][:cut], client)
		feed(sides[parser.Server], server)
		feed(sides[parser.Client][cut:], client)
		want := c.left * 1000 * len(content)
		if name == "goes on" {
			want += 1000 * len(content)
		}
		empty, _ := http2.New(nil)
		got, asked := client.Held(), all[0].asked
		if got < want || got > want+6<<10 || empty.Held() > 4<<10 {
			t.Errorf("%s: %d bytes are held, want about %d", name, got, want)
		}
		for range 100 {
			client.Held()
		}
		if all[0].asked != asked {
			t.Errorf("%s: streams were asked what they hold", name)
		}
	}
}

// A connection tells the memory that its tables of header fields take, whatever the fields are; fields that are put
// into no table, or are there already, take none.
func TestTablesAreHeld(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const blocks, connections = 2000, 3
	// told returns the bytes that a connection tells after that many header blocks, each with a field of its own, and
	// the bytes of memory that it takes.
	told := func(fill func(i int) hpack.HeaderField) (says, takes int) {
		var block, out bytes.Buffer
		enc, framer := hpack.NewEncoder(&block), xhttp2.NewFramer(&out, nil)
		out.WriteString(xhttp2.ClientPreface)
		if err := framer.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		for i := range blocks {
			block.Reset()
			if err := enc.WriteField(fill(i)); err != nil {
				t.Fatal(err)
			}
			if err := framer.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
				t.Fatal(err)
			}
		}
		all := make([]*http2.Direction, connections)
		before := heap()
		for i := range all {
			all[i], _ = http2.New(func(http2.Fields) (http2.Exchange, error) { return nil, nil })
			for b := out.Bytes(); len(b) > 0; {
				seg, err := all[i].Next(b)
				if err != nil {
					t.Fatal(err)
				}
				b = b[seg.Len:]
			}
		}
		takes = int(heap()-before) / connections
		says = all[0].Held()
		runtime.KeepAlive(all)
		return says, takes
	}
	for _, n := range []int{0, 200} {
		says, takes := told(func(i int) hpack.HeaderField {
			return hpack.HeaderField{Name: fmt.Sprintf("n%d", i), Value: fmt.Sprintf("%0*d", n, i)}
		})
		if says < takes/2 || says > 5*takes {
			t.Errorf("values of %d bytes: %d bytes are told, and %d taken", n, says, takes)
		}
	}
	for name, fill := range map[string]func(i int) hpack.HeaderField{
		"the same again": func(int) hpack.HeaderField { return hpack.HeaderField{Name: "name", Value: "value"} },
		"never indexed": func(i int) hpack.HeaderField {
			return hpack.HeaderField{Name: fmt.Sprint("name", i), Value: "value", Sensitive: true}
		},
		"of the static table": func(int) hpack.HeaderField { return hpack.HeaderField{Name: ":method", Value: "POST"} },
	} {
		if says, takes := told(fill); says > 6<<10 {
			t.Errorf("fields that are %s: %d bytes are told, and %d taken", name, says, takes)
		}
	}
}
