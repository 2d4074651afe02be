package grpc

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/http2"
	"github.com/gradproxy/gradproxy/tensor"
)

// New returns the parsers of a connection whose calls s reads. They are Counters.
func New(s Service) (fromClient, fromServer parser.Parser) {
	c := &connection{service: s}
	client, server := http2.New(c.open)
	return &direction{client, c, parser.Client}, &direction{server, c, parser.Server}
}

// A connection holds the state that its directions share.
type connection struct {
	service    Service
	recognized atomic.Bool // the first call was the Service's
	counts     [2]struct{ messages, payloads atomic.Int64 }
	methods    [2]string  // of the last bytes of messages, by side; each is used by its direction alone
	named      [2]labeled // the names in the last bytes, likewise; nil: none begins a tensor with a name
}

// A labeled is a Named message, or the name in one that has ended, so that it does not stay in memory until the next
// comes.
type labeled interface{ Label() parser.Label }

type ended parser.Label

func (l ended) Label() parser.Label { return parser.Label(l) }

// A direction is one direction of a connection.
type direction struct {
	*http2.Direction
	conn *connection
	side parser.Side
}

// Messages implements [parser.Counter].
func (d *direction) Messages() (all, payloads int) {
	n := &d.conn.counts[d.side]
	return int(n.messages.Load()), int(n.payloads.Load())
}

// Recognized implements [parser.Counter].
func (d *direction) Recognized() bool { return d.conn.recognized.Load() }

// Next implements [parser.Parser].
func (d *direction) Next(b []byte) (parser.Segment, error) {
	d.conn.methods[d.side], d.conn.named[d.side] = "", nil
	return d.Direction.Next(b)
}

// Held implements [parser.Sized].
func (d *direction) Held() int {
	n := d.Direction.Held()
	if h, ok := d.conn.service.(Sized); ok {
		n += h.Held(d.side)
	}
	return n
}

// Method implements [parser.Dispatched].
func (d *direction) Method() string { return d.conn.methods[d.side] }

// Label implements [parser.Labeler].
func (d *direction) Label(t tensor.Tensor) parser.Label {
	if l, ok := d.conn.service.(Labeler); ok {
		return l.Label(d.side, t)
	}
	if m := d.conn.named[d.side]; m != nil {
		return m.Label()
	}
	return parser.Label{}
}

var (
	_ parser.Counter    = (*direction)(nil)
	_ parser.Dispatched = (*direction)(nil)
	_ parser.Labeler    = (*direction)(nil)
	_ parser.Sized      = (*direction)(nil)
)

// maxPath bounds the path of a call that is read, in bytes: a request names a path in its table of header fields by one
// byte, however long the path is, and each open call has a copy.
const maxPath = 512

// open begins a call.
func (c *connection) open(request http2.Fields) (http2.Exchange, error) {
	path := request.Get(":path")
	if !speaksGRPC(request) || len(path) > maxPath {
		return nil, nil
	}
	path = strings.Clone(path)
	if !c.recognized.Load() {
		if !c.service.Speaks(path) {
			return nil, fmt.Errorf("grpc: calls of another service: %w", parser.ErrForeign)
		}
		c.recognized.Store(true)
	}
	x := &exchange{conn: c, stream: new(Stream), path: path}
	x.call = c.service.Call(path, x.stream)
	x.halves[parser.Client].reads = true
	return x, nil
}

// speaksGRPC reports whether a header block has gRPC's content-type, which may name the coding of messages after a "+".
func speaksGRPC(fields http2.Fields) bool {
	rest, ok := strings.CutPrefix(fields.Get("content-type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// An exchange is a call.
type exchange struct {
	conn   *connection
	stream *Stream
	path   string
	call   Call // nil: nobody reads its messages
	halves [2]half
	held   [2]atomic.Int64 // bytes that the messages under way take, by side
}

// A half is one side's part of a call.
type half struct {
	reads   bool    // its content is messages
	prefix  [5]byte // of the next message
	got     int     // bytes of prefix that have come
	number  int     // of the messages that have begun
	left    int     // bytes of the message still to come
	message Message // nil: nobody reads it
}

// Headers implements [http2.Exchange]: a response's content is read if its header fields say that it is messages.
func (x *exchange) Headers(from parser.Side, fields http2.Fields) {
	if h := &x.halves[from]; from == parser.Server && h.number == 0 && h.got == 0 && speaksGRPC(fields) {
		h.reads = true
	}
}

// Close implements [http2.Exchange].
func (x *exchange) Close() { x.stream.over.Store(true) }

// Held implements [http2.Sized].
func (x *exchange) Held() int {
	n := int(x.held[parser.Client].Load() + x.held[parser.Server].Load())
	if s, ok := x.call.(http2.Sized); ok {
		n += s.Held()
	}
	return n
}

// Data implements [http2.Exchange].
func (x *exchange) Data(from parser.Side, b []byte, rest int) (parser.Segment, error) {
	h := &x.halves[from]
	switch {
	case !h.reads:
		return parser.Segment{Len: len(b)}, nil
	case h.left == 0:
		return parser.Segment{Len: x.begin(h, from, b)}, nil
	}
	b = b[:min(len(b), h.left)]
	seg := parser.Segment{Len: len(b)}
	x.conn.methods[from] = x.path
	if h.message != nil {
		seg = h.message.Next(b, min(rest, h.left))
		if named, ok := h.message.(Named); ok && seg.Tensor.Size > 0 && seg.Tensor.Off == 0 {
			if x.conn.named[from] = named; seg.Len == h.left {
				x.conn.named[from] = ended(named.Label())
			}
		}
		if s, ok := h.message.(http2.Sized); ok {
			x.held[from].Store(int64(s.Held()))
		}
	}
	if h.left -= seg.Len; h.left == 0 {
		x.end(h, from)
	}
	return seg, nil
}

// begin takes bytes of a message's prefix, and returns their number.
func (x *exchange) begin(h *half, from parser.Side, b []byte) int {
	n := copy(h.prefix[h.got:], b)
	if h.got += n; h.got < len(h.prefix) {
		return n
	}
	h.got = 0
	if h.prefix[0] > 1 {
		h.reads = false
		return n
	}
	head := Head{From: from, Number: h.number, Len: int(binary.BigEndian.Uint32(h.prefix[1:])), Compressed: h.prefix[0] == 1}
	h.number++
	h.left = head.Len
	x.conn.counts[from].messages.Add(1)
	if h.message = nil; x.call != nil {
		if m := x.call.Message(head); !head.Compressed {
			h.message = m
		}
	}
	if h.left == 0 {
		x.end(h, from)
	}
	return n
}

// end ends a message.
func (x *exchange) end(h *half, from parser.Side) {
	m := h.message
	x.held[from].Store(0)
	if h.message = nil; m != nil && m.End() {
		x.conn.counts[from].payloads.Add(1)
	}
}
