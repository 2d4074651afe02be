package http2

import (
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
)

// A Direction reads one direction of a connection. It is a [parser.Parser] of the whole direction.
type Direction struct {
	conn *conn
	side parser.Side

	state     state
	undecided []byte // copy of bytes that are understood together, already given out as opaque
	frame     frame
	stream    *stream // whose content the frame has; nil: nobody reads it
	block     block
	list      list
	begun     bool   // the first frame, SETTINGS, has begun
	last      uint32 // highest stream that the client has opened
	calls     int    // streams that were read
	err       error  // why the direction is not, or no longer, understood
}

// A state is the part of the direction to which its next byte belongs.
type state uint8

const (
	inPreface state = iota
	inHeader        // of a frame
	inLead          // the bytes before a frame's content
	inContent
	inPadding
)

// New returns the directions of a connection. open is called with the header fields of each request, which are valid
// during the call; it returns nil for a stream that nobody reads, and an error if the connection is not worth reading
// (it wraps [parser.ErrForeign] if it is another protocol's): both directions end with it. Calls of open do not
// overlap.
func New(open func(request Fields) (Exchange, error)) (fromClient, fromServer *Direction) {
	c := &conn{open: open, streams: map[uint32]*stream{}}
	return newDirection(c, parser.Client), newDirection(c, parser.Server)
}

func newDirection(c *conn, side parser.Side) *Direction {
	d := &Direction{conn: c, side: side}
	if side == parser.Server {
		d.state = inHeader
	}
	return d
}

// errBroken says that a connection holds bytes that are no HTTP/2.
var errBroken = errors.New("http2: the protocol is broken")

// Next implements [parser.Parser].
func (d *Direction) Next(b []byte) (parser.Segment, error) {
	n := 0 // opaque bytes of b
	for n < len(b) && d.err == nil {
		if d.state == inContent && d.stream != nil {
			if n > 0 {
				break
			}
			return d.data(b)
		}
		n += d.opaque(b[n:])
	}
	if n == 0 {
		return parser.Segment{}, d.err
	}
	return parser.Segment{Len: n}, nil
}

// data gives content to the stream's Exchange.
func (d *Direction) data(b []byte) (parser.Segment, error) {
	b = b[:min(len(b), d.frame.rest)]
	seg, err := d.stream.exchange.Data(d.side, b, d.frame.rest)
	d.conn.weigh(d.stream)
	if err != nil {
		d.fail(err)
		return parser.Segment{}, d.err
	}
	d.frame.rest -= seg.Len
	d.settle()
	return seg, nil
}

// weigh takes note of how much a stream takes, after its exchange has read something.
func (c *conn) weigh(s *stream) {
	x, ok := s.exchange.(Sized)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	n := int64(x.Held())
	c.took.Add(n - s.takes)
	s.takes = n
}

// opaque takes bytes of b up to the end of the current part, and returns their number. It returns 0 if they are not
// understood, which sets d.err.
func (d *Direction) opaque(b []byte) int {
	var n int
	switch d.state {
	case inPreface:
		n = d.greet(b)
	case inHeader:
		whole, used := d.collect(b, frameHeader)
		if n = used; whole != nil {
			d.begin(whole)
		}
	case inLead:
		whole, used := d.collect(b, d.frame.lead)
		if n = used; whole != nil {
			if err := d.frame.padding(whole); err != nil {
				d.fail(err)
			}
			d.enter()
		}
	case inContent:
		n = min(len(b), d.frame.rest)
		if d.block.open {
			d.fragment(b[:n])
		}
		d.frame.rest -= n
	case inPadding:
		n = min(len(b), d.frame.pad)
		d.frame.pad -= n
	}
	d.settle()
	if d.err != nil {
		return 0
	}
	return n
}

// collect gathers n bytes, which may come in pieces. It returns them once they are whole, and how many bytes of b it
// took. whole is valid until the next call.
func (d *Direction) collect(b []byte, n int) (whole []byte, used int) {
	if len(d.undecided) == 0 && len(b) >= n {
		return b[:n], n
	}
	used = min(n-len(d.undecided), len(b))
	if d.undecided = append(d.undecided, b[:used]...); len(d.undecided) < n {
		return nil, used
	}
	whole, d.undecided = d.undecided, d.undecided[:0]
	return whole, used
}

// greet takes bytes of the preface.
func (d *Direction) greet(b []byte) int {
	whole, n := d.collect(b, len(preface))
	seen := whole
	if whole == nil {
		seen = d.undecided
	}
	if string(seen) != preface[:len(seen)] {
		d.fail(errors.New("the first bytes are no preface"))
	}
	if whole != nil {
		d.state = inHeader
	}
	return n
}

// begin takes a frame's header.
func (d *Direction) begin(header []byte) {
	f, err := parseFrame(header)
	d.frame, d.err = f, d.conn.failed()
	switch {
	case d.err != nil:
	case err != nil:
		d.fail(err)
	case !d.begun && (f.typ != typeSettings || f.has(flagAck)):
		d.fail(errors.New("the first frame is not SETTINGS"))
	case d.block.open && (f.typ != typeContinuation || f.id != d.block.id), !d.block.open && f.typ == typeContinuation:
		d.fail(fmt.Errorf("a frame of type %d in or after a header block", f.typ))
	case d.side == parser.Client && f.typ == typePushPromise:
		d.fail(errors.New("PUSH_PROMISE, which only a server may send"))
	}
	d.begun = true
	if d.state = inLead; f.lead == 0 {
		d.enter()
	}
}

// enter begins a frame's content.
func (d *Direction) enter() {
	d.state = inContent
	if d.err != nil {
		return
	}
	switch f := &d.frame; f.typ {
	case typeData:
		d.stream = d.conn.stream(f.id, d.side)
	case typeHeaders, typePushPromise:
		d.block = block{open: true, id: f.id, end: f.typ == typeHeaders && f.has(flagEndStream), pushed: f.typ == typePushPromise, data: d.block.data[:0]}
	}
}

// fragment takes bytes of a header block. It copies all of them if the block is not whole yet.
func (d *Direction) fragment(b []byte) {
	k := &d.block
	last := len(b) == d.frame.rest && d.frame.has(flagEndHeaders)
	if len(k.data)+len(b) > maxBlock {
		d.fail(errTooLarge)
		return
	}
	if last && len(k.data) == 0 {
		d.headers(b)
		return
	}
	if k.data = append(k.data, b...); last {
		d.headers(k.data)
	}
}

// headers takes a whole header block.
func (d *Direction) headers(b []byte) {
	k := &d.block
	k.open = false
	fields, err := d.list.decode(b)
	defer d.list.forget()
	if k.data = k.data[:0]; cap(k.data) > keptRoom {
		k.data = nil
	}
	if err != nil {
		d.fail(err)
		return
	}
	if k.pushed {
		return
	}
	if d.side == parser.Client && k.id > d.last && k.id%2 == 1 {
		d.last = k.id
		s, err := d.conn.begin(k.id, fields)
		if err != nil {
			d.fail(err)
			return
		}
		if s != nil {
			d.calls++
		}
	} else if s := d.conn.stream(k.id, d.side); s != nil {
		s.exchange.Headers(d.side, fields)
	}
	if k.end {
		d.conn.end(k.id, d.side)
	}
}

// settle goes on to the next part of the direction where the current one has no bytes left.
func (d *Direction) settle() {
	if d.err != nil {
		return
	}
	f := &d.frame
	if d.state == inContent && f.rest == 0 {
		d.stream = nil
		if d.state = inPadding; d.block.open && f.has(flagEndHeaders) { // its last fragment is empty
			d.fragment(nil)
		}
	}
	if d.state == inPadding && f.pad == 0 {
		d.state = inHeader
		switch {
		case f.typ == typeData && f.has(flagEndStream):
			d.conn.end(f.id, d.side)
		case f.typ == typeReset:
			d.conn.reset(f.id)
		}
	}
}

// fail notes that the direction is not, or no longer, understood.
func (d *Direction) fail(why error) {
	switch {
	case d.err != nil:
	case errors.Is(why, parser.ErrForeign):
		d.err = why
	case d.side == parser.Client && d.calls == 0, !d.begun:
		d.err = fmt.Errorf("http2: from the %v: %w: %w", d.side, why, parser.ErrForeign)
	default:
		d.err = fmt.Errorf("%w by the %v: %w: the rest travels verbatim: %w", errBroken, d.side, why, parser.ErrForget)
	}
}

// Held implements [parser.Sized]: the client's direction tells of the streams.
func (d *Direction) Held() int {
	n := cap(d.undecided) + cap(d.block.data) + d.list.held()
	if d.side == parser.Client {
		n += d.conn.held()
	}
	return n
}

var _ parser.Sized = (*Direction)(nil)
