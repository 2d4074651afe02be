package http2

import (
	"sync"
	"sync/atomic"

	"github.com/gradproxy/gradproxy/parser"
)

// An Exchange reads one stream: a request and its response. Calls for one side do not overlap, nor do they with Close,
// but calls for the two sides may.
type Exchange interface {
	// Headers is given a header block that is not the one which opened the stream: the response's, or trailers. fields
	// is valid during the call.
	Headers(from parser.Side, fields Fields)
	// Data classifies a prefix of b, at least one byte of it, as [parser.Parser] does: b, which is not empty, is the
	// next content of that side, and must be neither modified nor retained. rest is how many bytes of content, from b's
	// first on, the same frame has: a sender that has begun a frame writes it without waiting for an answer. After an
	// error all of the direction travels verbatim.
	Data(from parser.Side, b []byte, rest int) (parser.Segment, error)
	// Close is called at most once: when both sides have ended the stream, when one has reset it, or when the
	// connection has too many streams for this one to be read. Data of a frame under way may still be called after it.
	Close()
}

// A Sized Exchange tells how many bytes it takes. Held is called after each Data, and may be called beside the other
// side's calls.
type Sized interface{ Held() int }

// maxStreams bounds the streams of a connection that are read at a time.
const maxStreams = 4096

// A conn holds the state that the directions of a connection share.
type conn struct {
	open func(request Fields) (Exchange, error)

	mu      sync.Mutex // guards the fields below
	streams map[uint32]*stream
	took    atomic.Int64 // bytes that the exchanges of streams have last said to take
	err     error        // of open: both directions end with it
}

// A stream is one that is read.
type stream struct {
	exchange Exchange
	ended    [2]bool // by side: no more content comes; guarded by conn.mu

	mu    sync.Mutex // guards the fields below; it may be taken under conn.mu
	takes int64      // that conn.took has of the stream
	gone  bool       // it is no stream of the connection any more, and conn.took must have nothing of it
}

// remove takes a stream out. c.mu is held.
func (c *conn) remove(id uint32, s *stream) {
	delete(c.streams, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.took.Add(-s.takes)
	s.takes, s.gone = 0, true
}

// failed returns the error that ended both directions.
func (c *conn) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// stream returns the stream of that id, nil if it is not read, or if the sender has ended its part.
func (c *conn) stream(id uint32, from parser.Side) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[id]
	if s == nil || s.ended[from] {
		return nil
	}
	return s
}

// begin opens a stream.
func (c *conn) begin(id uint32, request Fields) (*stream, error) {
	x, err := c.open(request)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	if x == nil || c.err != nil || len(c.streams) >= maxStreams {
		if x != nil {
			x.Close() // nobody will read it
		}
		return nil, c.err
	}
	s := &stream{exchange: x}
	c.streams[id] = s
	return s, nil
}

// end notes that a side has ended a stream.
func (c *conn) end(id uint32, from parser.Side) {
	c.mu.Lock()
	s := c.streams[id]
	if s != nil {
		if s.ended[from] = true; s.ended[1-from] {
			c.remove(id, s)
		} else {
			s = nil
		}
	}
	c.mu.Unlock()
	if s != nil {
		s.exchange.Close()
	}
}

// reset notes that a side has reset a stream.
func (c *conn) reset(id uint32) {
	c.mu.Lock()
	s := c.streams[id]
	if s != nil {
		c.remove(id, s)
	}
	c.mu.Unlock()
	if s != nil {
		s.exchange.Close()
	}
}

// held returns about how many bytes the streams that are read take, at a cost that does not depend on their number.
func (c *conn) held() int {
	const perStream = 1 << 10
	c.mu.Lock()
	defer c.mu.Unlock()
	return perStream*len(c.streams) + int(c.took.Load())
}
