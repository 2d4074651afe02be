package nvflare

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/internal/protowalk"
)

// A service reads the calls of a gRPC connection.
type service struct {
	conn  *connection
	calls int // that are read
}

// maxCalls bounds the calls of a connection that are read: a client makes one.
const maxCalls = 2

// streamPath is the one method, whose messages have a frame each.
const streamPath = "/streamer.Streamer/Stream"

// Speaks implements grpc.Service.
func (*service) Speaks(path string) bool { return path == streamPath }

// Call implements grpc.Service.
func (s *service) Call(path string, _ *grpc.Stream) grpc.Call {
	if path != streamPath || s.calls >= maxCalls {
		return nil
	}
	s.calls++
	c := &call{}
	for side := range c.sides {
		c.sides[side].frames = sfm{conn: s.conn, side: parser.Side(side)}
	}
	return c
}

// A call is one call of the method.
type call struct{ sides [2]messages }

// messages is one side of a call.
type messages struct {
	frames sfm
	scan   protowalk.Scanner
	broken bool // frames are no longer understood
	arrays int  // frames with elements, before the current message
}

// Message implements grpc.Call.
func (c *call) Message(h grpc.Head) grpc.Message {
	m := &c.sides[h.From]
	if m.broken = m.broken || h.Compressed || m.frames.inside(); m.broken {
		return nil
	}
	m.arrays = m.frames.arrays
	m.scan.Begin(h.Len, field{})
	return message{m}
}

// A message is one message of a side.
type message struct{ *messages }

// Next implements grpc.Message.
func (m message) Next(b []byte, sure int) parser.Segment {
	if m.broken {
		return parser.Segment{Len: len(b)}
	}
	if n := m.scan.Next(b); n > 0 {
		return parser.Segment{Len: n}
	}
	n := m.scan.Streaming()
	seg, err := m.frames.next(b[:min(len(b), n)], min(sure, n))
	if err != nil {
		m.broken = true
		return parser.Segment{Len: len(b)}
	}
	m.scan.Take(seg.Len)
	return seg
}

// End implements grpc.Message.
func (m message) End() (payload bool) { return m.frames.arrays > m.arrays }

// A field is the choice of the field that has the frame.
type field struct{}

// Field implements protowalk.Handler.
func (field) Field(p protowalk.Path, _ int) protowalk.Want {
	if p == 2 {
		return protowalk.Stream
	}
	return protowalk.Skip
}

// Varint implements protowalk.Handler.
func (field) Varint(protowalk.Path, uint64) {}

// Bytes implements protowalk.Handler.
func (field) Bytes(protowalk.Path, []byte) {}

// End implements protowalk.Handler.
func (field) End(protowalk.Path) {}
